#include "io/checkpoint/npy.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kNpyEnding = ".npy";
constexpr uint64_t kMostNpyHeader = 64 * KiB;

constexpr auto kNpyTypes = std::to_array<std::pair<std::string_view, DType>>({
    {"<f8", DType::f64},
    {"<f4", DType::f32},
    {"<f2", DType::f16},
    {"<V2", DType::bf16},  // a type of its own to numpy
    {"|V2", DType::bf16},
    {"<i8", DType::i64},
    {"<i4", DType::i32},
    {"<i2", DType::i16},
    {"|i1", DType::i8},
    {"<u8", DType::u64},
    {"<u4", DType::u32},
    {"<u2", DType::u16},
    {"|u1", DType::u8},
    {"|b1", DType::boolean},
    {"<c8", DType::c64},
});

// Reads the header of an array: a dict of Python's with the keys descr, fortran_order and shape.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  void read(StoredTensor& tensor) {
    need("{");
    while (!take("}")) {
      const std::string_view key = string();
      need(":");
      if (key == "descr" && !had_type_) {
        tensor.dtype = type();
        had_type_ = true;
      } else if (key == "fortran_order" && !fortran_) {
        fortran_ = take("True");
        if (!*fortran_) need("False");
      } else if (key == "shape" && !had_shape_) {
        tensor.shape = shape();
        had_shape_ = true;
      } else {
        refuse("its header has a key that is not known, or one twice");
      }
      if (!take(",")) {
        need("}");
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) refuse("its header is not a plain dictionary");
    if (!had_type_ || !fortran_ || !had_shape_) refuse("its header lacks a key");
    if (*fortran_) exchange_dimensions(tensor);
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void need(std::string_view word) {
    if (!take(word)) refuse("its header is not a plain dictionary");
  }
  std::string_view string() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) refuse("its header is not a plain dictionary");
    const std::string_view taken = text_.substr(at_ + 1, end - at_ - 1);
    if (taken.find('\\') != std::string_view::npos) refuse("its header is not a plain dictionary");
    at_ = end + 1;
    return taken;
  }
  DType type() {
    skip_spaces();
    if (text_.substr(at_).starts_with("[")) refuse("has several fields, which no tensor has");
    const std::string_view name = string();
    if (name.find('O') != std::string_view::npos)
      refuse("has objects, which would be a pickle: it is not opened");
    if (name.starts_with('>')) refuse("is big-endian; only little-endian arrays are read");
    const auto found =
        std::ranges::find(kNpyTypes, name, &std::pair<std::string_view, DType>::first);
    if (found == kNpyTypes.end()) refuse(fmt::format("has unknown dtype {}", printable(name)));
    return found->second;
  }
  Shape shape() {
    Shape shape;
    need("(");
    while (!take(")")) {
      skip_spaces();
      int64_t size = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (error == std::errc::result_out_of_range) refuse("has a dimension that overflows 63 bits");
      if (error != std::errc{}) refuse("its header is not a plain dictionary");
      if (size < 0) refuse(fmt::format("has a negative dimension ({})", size));
      at_ += static_cast<size_t>(end - begin);
      if (!shape.push_back(size))
        refuse(fmt::format("has too many dimensions (more than {})", Shape::kMaxDims));
      take("L");  // as Python 2 wrote numbers
      if (!take(",")) {
        need(")");
        break;
      }
    }
    return shape;
  }
  // Fortran's order: the first dimension's elements are neighbours.
  void exchange_dimensions(StoredTensor& tensor) const {
    const Shape& shape = tensor.shape;
    const auto wide = std::ranges::count_if(shape, [](int64_t size) { return size != 1; });
    if (wide <= 1) return;
    if (shape.size() > 2)
      refuse(
          "lies in Fortran's order with more than two dimensions; save it with "
          "numpy.ascontiguousarray");
    tensor.shape = {shape[1], shape[0]};
    tensor.column_major = true;
  }
  [[noreturn]] void refuse(std::string_view fault) const {
    fail(ErrorKind::refused, "{}: {}", where_, fault);
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  bool had_type_ = false;
  bool had_shape_ = false;
  std::optional<bool> fortran_;
};

// An array in `bytes` bytes of a file, from `offset` on, of which it is all.
StoredTensor read_array(const Fd& fd, const CheckpointFile& file, uint64_t offset, uint64_t bytes,
                        const std::string& where) {
  const auto refuse = [&](std::string_view fault) {
    fail(ErrorKind::refused, "{}: {}", where, fault);
  };
  constexpr uint64_t kVersionBytes = 2;
  uint64_t before = kNpyMagic.size() + kVersionBytes;
  std::string head(std::min<uint64_t>(before + sizeof(uint32_t), bytes), '\0');
  read_exactly(fd, file.path, offset, head);
  if (!head.starts_with(kNpyMagic) || head.size() < before + sizeof(uint32_t))
    refuse("is no array of numpy: it does not begin as one");
  const auto byte = [&](uint64_t at) { return static_cast<unsigned char>(head[at]); };
  const unsigned version = byte(kNpyMagic.size());
  if (version < 1 || version > 3) refuse(fmt::format("has version {}; 1 to 3 are known", version));
  uint64_t length = byte(before) | byte(before + 1) << 8;
  if (version > 1)
    length |= static_cast<uint64_t>(byte(before + 2)) << 16 |
              static_cast<uint64_t>(byte(before + 3)) << 24;
  before += version == 1 ? sizeof(uint16_t) : sizeof(uint32_t);
  if (length > kMostNpyHeader)
    refuse(fmt::format("its header has {} bytes, more than the {} that are accepted", length,
                       kMostNpyHeader));
  if (length > bytes - before) refuse("its header is longer than what is there");
  std::string text(length, '\0');
  read_exactly(fd, file.path, offset + before, text);
  StoredTensor tensor;
  NpyHeader(text, where).read(tensor);
  const std::optional<uint64_t> needed = stored_bytes(tensor.dtype, tensor.shape);
  if (!needed) refuse(fmt::format("shape {} overflows 64 bits", tensor.shape.str()));
  const uint64_t there = bytes - before - length;
  if (*needed != there)
    refuse(fmt::format("shape {} of {} needs {} bytes, but {} are stored", tensor.shape.str(),
                       dtype_name(tensor.dtype), *needed, there));
  tensor.offset = offset + before + length;
  tensor.bytes = *needed;
  return tensor;
}

}  // namespace

TensorFile read_npy(const std::filesystem::path& path, std::string name) {
  const Fd fd = open_resolved(path);
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  TensorFile result{.file = describe_file(fd, path, std::move(name)), .tensors = {}};
  result.tensors.push_back(
      read_array(fd, result.file, 0, result.file.size, printable(path.string())));
  return result;
}

bool is_npz(std::span<const ZipMember> members) {
  return std::ranges::any_of(members,
                             [](const ZipMember& m) { return m.name.ends_with(kNpyEnding); });
}

std::vector<StoredTensor> read_npz(const Fd& fd, const CheckpointFile& file,
                                   std::span<const ZipMember> members, const std::string& where) {
  std::vector<StoredTensor> tensors;
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kNpyEnding)) continue;
    if (!member.stored)
      fail(ErrorKind::refused,
           "{}: member {} is compressed ({}), and weights are read in any order; save it again: "
           "numpy.savez(FILE, **numpy.load(FILE))",
           where, printable(member.name), format_size(member.bytes));
    StoredTensor tensor = read_array(fd, file, member.offset, member.bytes,
                                     fmt::format("{}: {}", where, printable(member.name)));
    tensor.name = member.name.substr(0, member.name.size() - kNpyEnding.size());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace sluice::io
