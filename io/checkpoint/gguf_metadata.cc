#include "io/checkpoint/gguf_metadata.h"

#include "io/checkpoint/gguf_writer.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

template <class T>
std::string_view raw_bytes(const T& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

void append_text(std::string& to, std::string_view text) {
  to += raw_bytes(uint64_t{text.size()});
  to += text;
}

}  // namespace

void GgufMetadata::begin(std::string_view key, GgufType type) {
  append_text(bytes_, key);
  bytes_ += raw_bytes(type);
  ++count_;
}

void GgufMetadata::begin_array(std::string_view key, GgufType type, size_t elements) {
  begin(key, GgufType::array);
  bytes_ += raw_bytes(type);
  bytes_ += raw_bytes(uint64_t{elements});
}

void GgufMetadata::add_integer(std::string_view key, uint32_t value) {
  begin(key, GgufType::u32);
  bytes_ += raw_bytes(value);
}

void GgufMetadata::add_short(std::string_view key, uint16_t value) {
  begin(key, GgufType::u16);
  bytes_ += raw_bytes(value);
}

void GgufMetadata::add_signed(std::string_view key, int32_t value) {
  begin(key, GgufType::i32);
  bytes_ += raw_bytes(value);
}

void GgufMetadata::add_number(std::string_view key, float value) {
  begin(key, GgufType::f32);
  bytes_ += raw_bytes(value);
}

void GgufMetadata::add_boolean(std::string_view key, bool value) {
  begin(key, GgufType::boolean);
  bytes_ += value ? '\1' : '\0';
}

void GgufMetadata::add_string(std::string_view key, std::string_view value) {
  begin(key, GgufType::string);
  append_text(bytes_, value);
}

void GgufMetadata::add_strings(std::string_view key, std::span<const std::string> values) {
  begin_array(key, GgufType::string, values.size());
  for (const std::string& value : values) append_text(bytes_, value);
}

void GgufMetadata::add_integers(std::string_view key, std::span<const int32_t> values) {
  begin_array(key, GgufType::i32, values.size());
  for (const int32_t value : values) bytes_ += raw_bytes(value);
}

void GgufMetadata::add_numbers(std::string_view key, std::span<const float> values) {
  begin_array(key, GgufType::f32, values.size());
  for (const float value : values) bytes_ += raw_bytes(value);
}

void GgufMetadata::add_booleans(std::string_view key, const std::vector<bool>& values) {
  begin_array(key, GgufType::boolean, values.size());
  for (const bool value : values) bytes_ += value ? '\1' : '\0';
}

GgufLayout lay_out_gguf(const GgufMetadata& metadata, const GgufPlace& place,
                        std::span<const TensorToWrite> tensors) {
  GgufMetadata all = place.file == 0 ? metadata : GgufMetadata();
  if (place.files > 1) {
    all.add_short("split.no", static_cast<uint16_t>(place.file));
    all.add_short("split.count", static_cast<uint16_t>(place.files));
    all.add_signed("split.tensors.count", static_cast<int32_t>(place.tensors));
  }
  const GgufDescriptions descriptions =
      describe_gguf_tensors(tensors.size(), [&](size_t i) { return tensors[i]; }, kGgufAlignment);
  GgufLayout layout;
  layout.header = kGgufMagic;
  layout.header += raw_bytes(kGgufVersion);
  layout.header += raw_bytes(uint64_t{tensors.size()});
  layout.header += raw_bytes(all.count());
  layout.header += all.bytes();
  layout.header += descriptions.text;
  layout.header.resize(round_up(layout.header.size(), kGgufAlignment));
  for (const uint64_t bytes : descriptions.bytes)
    layout.padding.push_back(round_up(bytes, kGgufAlignment) - bytes);
  layout.file_bytes = layout.header.size() + descriptions.end;
  return layout;
}

}  // namespace sluice::io
