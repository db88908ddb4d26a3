#include "io/checkpoint/gguf_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "io/checkpoint/read_tensors.h"
#include "src/base/check.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

template <class T>
std::string_view bytes_of(const T& number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

std::string key_of_config(std::string_view config) {
  std::string key;
  key += bytes_of(uint64_t{kGgufCutConfig.size()});
  key += kGgufCutConfig;
  key += bytes_of(GgufType::string);
  key += bytes_of(uint64_t{config.size()});
  return key += config;
}

// `more`: bytes beside the metadata of `like`.
uint64_t header_bytes(const GgufHeader& like, uint64_t more) {
  uint64_t bytes = kGgufMagic.size() + sizeof(kGgufVersion) + 2 * sizeof(uint64_t) + more;
  for (const GgufHeader::Keys& keys : like.keys) bytes += keys.bytes;
  return round_up(bytes, like.alignment);
}

}  // namespace

GgufDescriptions describe_gguf_tensors(size_t count,
                                       const std::function<TensorToWrite(size_t)>& tensor,
                                       uint64_t alignment) {
  GgufDescriptions all;
  for (size_t i = 0; i < count; ++i) {
    const TensorToWrite t = tensor(i);
    all.text += bytes_of(uint64_t{t.name.size()});
    all.text += t.name;
    all.text += bytes_of(static_cast<uint32_t>(t.shape.size()));
    for (int d = t.shape.size(); d > 0; --d)
      all.text += bytes_of(static_cast<uint64_t>(t.shape[d - 1]));
    all.text += bytes_of(gguf_tensor_type(t.dtype));
    all.text += bytes_of(all.end);
    const std::optional<uint64_t> bytes = stored_bytes(t.dtype, t.shape);
    check(bytes.has_value(), "a tensor's size does not fit 64 bits");
    all.bytes.push_back(*bytes);
    all.end += round_up(*bytes, alignment);
  }
  return all;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufHeader& like,
                       std::string_view config, size_t count,
                       const std::function<TensorToWrite(size_t)>& tensor,
                       std::span<std::byte> block, const std::stop_token& stop)
    : GgufWriter(path, like, key_of_config(config),
                 describe_gguf_tensors(count, tensor, like.alignment), block, stop) {}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufHeader& like,
                       std::string config_key, GgufDescriptions tensors, std::span<std::byte> block,
                       const std::stop_token& stop)
    : alignment_(like.alignment),
      left_(tensors.bytes.rbegin(), tensors.bytes.rend()),
      out_(path, header_bytes(like, config_key.size() + tensors.text.size()) + tensors.end, block,
           stop) {
  uint64_t keys = 1;
  for (const GgufHeader::Keys& some : like.keys) keys += some.count;
  out_.write(kGgufMagic);
  out_.write(bytes_of(kGgufVersion));
  out_.write(bytes_of(uint64_t{left_.size()}));
  out_.write(bytes_of(keys));
  write_metadata(like);
  out_.write(config_key);
  out_.write(tensors.text);
  out_.align(alignment_);
}

void GgufWriter::write_metadata(const GgufHeader& like) {
  const OpenBytes from(like.file);
  std::array<char, 4096> part{};
  for (const GgufHeader::Keys& keys : like.keys) {
    for (uint64_t at = 0; at < keys.bytes; at += part.size()) {
      const auto bytes = std::span(part).first(std::min<uint64_t>(part.size(), keys.bytes - at));
      from.read(keys.offset + at, bytes);
      out_.write(std::as_bytes(bytes));
    }
  }
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    check(!left_.empty(), "the tensors' bytes do not match their shapes");
    const auto part = static_cast<size_t>(std::min<uint64_t>(left_.back(), bytes.size()));
    out_.write(bytes.first(part));
    bytes = bytes.subspan(part);
    left_.back() -= part;
    if (left_.back() > 0) continue;
    out_.align(alignment_);
    left_.pop_back();
  }
}

void GgufWriter::finish() { out_.finish(); }

}  // namespace sluice::io
