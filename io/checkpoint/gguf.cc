#include "io/checkpoint/gguf.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

constexpr uint64_t kMaxHeaderBytes = 1 * GiB;  // metadata and descriptions of tensors
constexpr uint64_t kMaxStringBytes = 16 * MiB;
constexpr uint64_t kMaxStringsBytes = 64 * MiB;  // of all values that are strings
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint32_t kMaxDims = 4;

// Bytes of one value of each type; 0: as many as it says itself.
constexpr std::array<uint8_t, 13> kTypeBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// ggml_type, as numbered in files; the rest are types that were given up, or that no file has.
constexpr auto kTensorTypes = std::to_array<std::pair<uint32_t, DType>>({
    {0, DType::f32},      {1, DType::f16},        {2, DType::q4_0},       {3, DType::q4_1},
    {6, DType::q5_0},     {7, DType::q5_1},       {8, DType::q8_0},       {10, DType::q2_k},
    {11, DType::q3_k},    {12, DType::q4_k},      {13, DType::q5_k},      {14, DType::q6_k},
    {16, DType::iq2_xxs}, {17, DType::iq2_xs},    {18, DType::iq3_xxs},   {19, DType::iq1_s},
    {20, DType::iq4_nl},  {21, DType::iq3_s},     {22, DType::iq2_s},     {23, DType::iq4_xs},
    {24, DType::i8},      {25, DType::i16},       {26, DType::i32},       {27, DType::i64},
    {28, DType::f64},     {29, DType::iq1_m},     {30, DType::bf16},      {34, DType::tq1_0},
    {35, DType::tq2_0},   {39, DType::e2m1_e8m0}, {40, DType::e2m1_e4m3}, {41, DType::q1_0},
    {42, DType::q2_0},
});

std::optional<DType> tensor_type(uint32_t number) {
  auto found = std::ranges::find(kTensorTypes, number, &std::pair<uint32_t, DType>::first);
  if (found == kTensorTypes.end()) return std::nullopt;
  return found->second;
}

// A file from its beginning on, by windows, so that no more than one of them is in memory and
// nothing of it stays in the page cache.
class HeaderReader {
 public:
  HeaderReader(const Fd& fd, const CheckpointFile& file, std::string where, uint64_t at = 0)
      : fd_(fd), file_(file), where_(std::move(where)), at_(at), window_at_(at) {}

  const std::string& where() const { return where_; }
  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.size - at_; }

  template <class T>
  T number(std::string_view what) {
    T value{};
    read(what, {reinterpret_cast<char*>(&value), sizeof value});
    return value;
  }
  // A length and as many bytes.
  std::string string(std::string_view what, uint64_t most) {
    const uint64_t length = string_length(what);
    if (length > most) {
      refuse(fmt::format("{} is {} bytes long, more than the {} that are accepted", what, length,
                         most));
    }
    std::string text(length, '\0');
    read(what, text);
    return text;
  }
  uint64_t string_length(std::string_view what) {
    const auto length = number<uint64_t>(what);
    if (length > left()) {
      refuse(fmt::format("{} is {} bytes long, but the file has {} more", what, length, left()));
    }
    return length;
  }
  void skip(uint64_t bytes, std::string_view what) {
    need(bytes, what);
    at_ += bytes;
  }
  void read(std::string_view what, std::span<char> to) {
    need(to.size(), what);
    while (!to.empty()) {
      if (at_ < window_at_ || at_ - window_at_ >= window_.size()) load_window();
      const uint64_t offset = at_ - window_at_;
      const size_t part = std::min(to.size(), static_cast<size_t>(window_.size() - offset));
      std::memcpy(to.data(), window_.data() + offset, part);
      at_ += part;
      to = to.subspan(part);
    }
  }
  [[noreturn]] void refuse(const std::string& fault) const {
    fail(ErrorKind::refused, "{}: {}", where_, fault);
  }

 private:
  void need(uint64_t bytes, std::string_view what) const {
    if (bytes > left()) {
      refuse(fmt::format("ends inside {}: the file is damaged or was not downloaded completely",
                         what));
    }
    if (at_ + bytes > kMaxHeaderBytes)
      refuse(fmt::format("the header is larger than {}", format_size(kMaxHeaderBytes)));
  }
  void load_window() {
    constexpr uint64_t kWindow = 64 * KiB;
    window_at_ = round_down(at_, kWindow);
    window_.resize(std::min(kWindow, file_.size - window_at_));
    read_exactly(fd_, file_.path, window_at_, window_);
    posix_fadvise(fd_.get(), static_cast<off_t>(window_at_), kWindow, POSIX_FADV_DONTNEED);
  }

  const Fd& fd_;
  const CheckpointFile& file_;
  std::string where_;
  uint64_t at_ = 0;
  uint64_t window_at_ = 0;
  std::string window_;
};

GgufType value_type(HeaderReader& in, std::string_view what) {
  const auto number = in.number<uint32_t>(what);
  if (number >= kTypeBytes.size()) in.refuse(fmt::format("{}: has unknown type {}", what, number));
  return static_cast<GgufType>(number);
}

Json scalar(HeaderReader& in, GgufType type, std::string_view what) {
  switch (type) {
    case GgufType::u8:
      return in.number<uint8_t>(what);
    case GgufType::i8:
      return in.number<int8_t>(what);
    case GgufType::u16:
      return in.number<uint16_t>(what);
    case GgufType::i16:
      return in.number<int16_t>(what);
    case GgufType::u32:
      return in.number<uint32_t>(what);
    case GgufType::i32:
      return in.number<int32_t>(what);
    case GgufType::f32:
      return in.number<float>(what);
    case GgufType::boolean:
      return in.number<uint8_t>(what) != 0;
    case GgufType::u64:
      return in.number<uint64_t>(what);
    case GgufType::i64:
      return in.number<int64_t>(what);
    case GgufType::f64:
      return in.number<double>(what);
    default:
      return in.string(what, kMaxStringBytes);
  }
}

// Passes over the elements.
GgufArray array(HeaderReader& in, const std::string& what) {
  GgufArray a{.type = value_type(in, what)};
  if (a.type == GgufType::array) in.refuse(what + ": arrays in arrays are not supported");
  a.count = in.number<uint64_t>(what);
  a.offset = in.at();
  const uint64_t element = kTypeBytes[static_cast<size_t>(a.type)];
  if (a.count > in.left() / std::max<uint64_t>(element, a.type == GgufType::string ? 8 : 1)) {
    in.refuse(fmt::format("{}: has {} elements, more than the file could hold", what, a.count));
  }
  if (a.type == GgufType::string) {
    for (uint64_t i = 0; i < a.count; ++i) in.skip(in.string_length(what), what);
  } else {
    in.skip(a.count * element, what);
  }
  a.bytes = in.at() - a.offset;
  return a;
}

void note_key(const std::string& key, uint64_t begin, uint64_t end, GgufHeader& header) {
  if (key.starts_with("split.") || key == kGgufCutConfig) return;
  std::vector<GgufHeader::Keys>& all = header.keys;
  if (all.empty() || all.back().offset + all.back().bytes != begin) all.push_back({begin, 0, 0});
  all.back().bytes += end - begin;
  ++all.back().count;
}

void read_metadata(HeaderReader& in, uint64_t count, GgufHeader& header) {
  header.values = Json::object();
  uint64_t string_bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = in.at();
    const std::string key = in.string("a key of the metadata", kMaxKeyBytes);
    const std::string what = "metadata key " + printable(key);
    if (header.values.contains(key) || header.arrays.contains(key))
      in.refuse(what + " is there twice");
    const GgufType type = value_type(in, what);
    if (type == GgufType::array) {
      header.arrays.emplace(key, array(in, what));
      note_key(key, begin, in.at(), header);
      continue;
    }
    Json value = scalar(in, type, what);
    if (type == GgufType::string) string_bytes += value.get_ref<const std::string&>().size();
    if (string_bytes > kMaxStringsBytes)
      in.refuse(
          fmt::format("the metadata has more than {} of text", format_size(kMaxStringsBytes)));
    header.values.emplace(key, std::move(value));
    note_key(key, begin, in.at(), header);
  }
}

// Returns whether the data would end with the file.
bool ends_with_file(const GgufHeader& header, uint64_t header_end, uint64_t alignment) {
  uint64_t end = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.offset % alignment != 0 || tensor.offset > header.file.size) return false;
    end = std::max(end, tensor.offset + tensor.bytes);
  }
  const uint64_t begin = round_up(header_end, alignment);
  return begin + end == header.file.size || begin + round_up(end, alignment) == header.file.size;
}

// gguf-py writes the alignment into the first part of a model alone, and aligns all parts by it.
uint64_t alignment_of_part(const GgufHeader& header, uint64_t header_end) {
  for (uint64_t alignment : {kGgufAlignment, 8ul, 16ul, 64ul, 128ul, 256ul, 512ul, 1024ul, 2048ul,
                             4096ul, 8192ul, 16384ul, 32768ul, 65536ul})
    if (ends_with_file(header, header_end, alignment)) return alignment;
  return kGgufAlignment;
}

// Tensors of `header` have their offsets from the beginning of the data.
uint64_t alignment_of(const GgufHeader& header, uint64_t header_end, const std::string& where) {
  const char* kKey = "general.alignment";
  const Json& values = header.values;
  if (!values.contains(kKey))
    return values.contains("split.no") ? alignment_of_part(header, header_end) : kGgufAlignment;
  const auto alignment =
      static_cast<uint64_t>(JsonFields(values, where).integer(kKey, 0, INT32_MAX));
  if (!std::has_single_bit(alignment)) {
    fail(ErrorKind::refused, "{}: general.alignment is {}, but must be a power of two", where,
         alignment);
  }
  return alignment;
}

// Its offset still counts from the beginning of the data.
StoredTensor read_tensor(HeaderReader& in) {
  StoredTensor tensor;
  tensor.name = in.string("the name of a tensor", kMaxKeyBytes);
  const std::string what = "tensor " + printable(tensor.name);
  const auto dims = in.number<uint32_t>(what);
  if (dims == 0 || dims > kMaxDims)
    in.refuse(fmt::format("{}: has {} dimensions, but 1 to {} are possible", what, dims, kMaxDims));
  std::array<uint64_t, kMaxDims> sizes{};
  for (uint32_t d = 0; d < dims; ++d) {
    sizes[d] = in.number<uint64_t>(what);
    if (sizes[d] == 0 || sizes[d] > static_cast<uint64_t>(INT64_MAX))
      in.refuse(fmt::format("{}: has a dimension of {}", what, sizes[d]));
  }
  for (uint32_t d = dims; d > 0; --d) tensor.shape.push_back(static_cast<int64_t>(sizes[d - 1]));
  const auto type = in.number<uint32_t>(what);
  const std::optional<DType> dtype = tensor_type(type);
  if (!dtype) in.refuse(fmt::format("{}: has unknown type {}", what, type));
  tensor.dtype = *dtype;
  tensor.offset = in.number<uint64_t>(what);
  // A tensor without a size is refused by check_tensor, which says why.
  if (has_whole_blocks(tensor.dtype, tensor.shape))
    tensor.bytes = stored_bytes(tensor.dtype, tensor.shape).value_or(0);
  return tensor;
}

void place_tensors(std::vector<StoredTensor>& tensors, const CheckpointFile& file,
                   uint64_t data_begin, uint64_t alignment, const std::string& where) {
  std::set<std::string_view> names;
  for (StoredTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      fail(ErrorKind::refused, "{}: tensor {}: the name is there twice", where,
           printable(tensor.name));
    }
    if (tensor.offset % alignment != 0) {
      fail(ErrorKind::refused,
           "{}: tensor {}: its data are at {}, which is not a multiple of the alignment {}", where,
           printable(tensor.name), tensor.offset, alignment);
    }
    if (__builtin_add_overflow(tensor.offset, data_begin, &tensor.offset))
      tensor.offset = UINT64_MAX;  // beyond the end of any file
    check_tensor(tensor, file);
  }
  std::ranges::sort(tensors, [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.name) < std::tie(b.offset, b.name);
  });
  for (size_t i = 1; i < tensors.size(); ++i) {
    const StoredTensor &a = tensors[i - 1], &b = tensors[i];
    if (b.offset - a.offset < a.bytes) {
      fail(ErrorKind::refused, "{}: tensor {}: its data overlap those of {}", where,
           printable(b.name), printable(a.name));
    }
  }
}

void check_version(HeaderReader& in) {
  const auto version = in.number<uint32_t>("the header");
  if (version != 0 && (version & 0xFFFF) == 0)
    in.refuse("is a big-endian GGUF file; only little-endian ones are supported");
  if (version != 2 && version != 3)
    in.refuse(fmt::format("is GGUF of version {}; versions 2 and 3 are supported", version));
}

uint64_t read_count(HeaderReader& in, std::string_view what, uint64_t most) {
  const auto count = in.number<uint64_t>("the header");
  constexpr uint64_t kLeast = 13;  // bytes of a key or a tensor
  if (count > most || count > in.left() / kLeast)
    in.refuse(fmt::format("claims to have {} {}, more than it could hold", count, what));
  return count;
}

// An open array of a header's file.
struct OpenArray {
  Fd fd;
  GgufArray array;
};

OpenArray open_array(const GgufHeader& header, std::string_view key, bool strings) {
  auto found = header.arrays.find(key);
  const std::string where = printable(header.file.path.string());
  if (found == header.arrays.end())
    fail(ErrorKind::refused, "{}: {} is missing, or no array", where, key);
  const bool is_string = found->second.type == GgufType::string;
  if (is_string != strings) {
    fail(ErrorKind::refused, "{}: {} must be an array of {}", where, key,
         strings ? "strings" : "numbers");
  }
  Fd fd = open_resolved(header.file.path);
  if (!is_unchanged(describe_file(fd, header.file.path, header.file.name), header.file))
    fail_changed(header.file.path);
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  return {std::move(fd), found->second};
}

}  // namespace

uint32_t gguf_tensor_type(DType type) {
  const auto found = std::ranges::find(kTensorTypes, type, &std::pair<uint32_t, DType>::second);
  check(found != kTensorTypes.end(), "a type that GGUF has");
  return found->first;
}

GgufHeader read_gguf_header(const std::filesystem::path& path, std::string name) {
  const Fd fd = open_resolved(path);
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  GgufHeader header;
  header.file = describe_file(fd, path, std::move(name));
  HeaderReader in(fd, header.file, printable(path.string()));
  std::array<char, 4> magic{};
  if (header.file.size >= magic.size()) in.read("the header", magic);
  if (std::string_view(magic.data(), magic.size()) != kGgufMagic)
    in.refuse("not a GGUF file: it does not begin with \"GGUF\"");
  check_version(in);
  const uint64_t tensors = read_count(in, "tensors", kMaxTensors);
  const uint64_t keys = read_count(in, "keys of metadata", kMaxKeys);
  read_metadata(in, keys, header);
  for (uint64_t i = 0; i < tensors; ++i) header.tensors.push_back(read_tensor(in));
  header.alignment = alignment_of(header, in.at(), in.where());
  place_tensors(header.tensors, header.file, round_up(in.at(), header.alignment), header.alignment,
                in.where());
  return header;
}

void each_gguf_string(const GgufHeader& header, std::string_view key,
                      const std::function<void(std::string_view)>& take) {
  const OpenArray open = open_array(header, key, true);
  HeaderReader in(open.fd, header.file, printable(header.file.path.string()), open.array.offset);
  for (uint64_t i = 0; i < open.array.count; ++i) take(in.string(key, kMaxStringBytes));
}

std::vector<double> read_gguf_numbers(const GgufHeader& header, std::string_view key) {
  const OpenArray open = open_array(header, key, false);
  HeaderReader in(open.fd, header.file, printable(header.file.path.string()), open.array.offset);
  std::vector<double> numbers;
  numbers.reserve(open.array.count);
  for (uint64_t i = 0; i < open.array.count; ++i) {
    const Json value = scalar(in, open.array.type, key);
    numbers.push_back(value.is_boolean() ? value.get<bool>() : value.get<double>());
  }
  return numbers;
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (path.extension() == ".gguf") return true;
  const Fd fd = open_regular(path);
  std::array<char, 4> magic{};
  if (std::filesystem::file_size(path, error) < magic.size() || error) return false;
  read_exactly(fd, path, 0, magic);
  return std::string_view(magic.data(), magic.size()) == kGgufMagic;
}

}  // namespace sluice::io
