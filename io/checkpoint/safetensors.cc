#include "io/checkpoint/safetensors.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "io/checkpoint/content.h"
#include "io/checkpoint/json_events.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

using Kind = JsonEvent::Kind;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
constexpr int kMaxDepth = 32;

// Collects the tensors of a header while it is parsed. Offsets are relative to the data section.
class HeaderEntries {
 public:
  explicit HeaderEntries(std::string where) : where_(std::move(where)) {}

  void take(const JsonEvent& e);
  std::vector<StoredTensor> tensors() && { return std::move(tensors_); }

 private:
  enum class Field : uint8_t { none, dtype, shape, data_offsets };

  void begin_entry(const JsonEvent& e);
  void end_entry();
  void take_metadata(const JsonEvent& e);
  void take_field(const JsonEvent& e);
  void begin_field(Field field, const JsonEvent& e, Kind expected, std::string_view what);
  void take_element(const JsonEvent& e);
  void take_dtype(std::string_view name);
  [[noreturn]] void refuse(const std::string& fault) const {
    fail(ErrorKind::refused, "{}: tensor {}: {}", where_, printable(tensor_.name), fault);
  }

  std::string where_;
  std::vector<StoredTensor> tensors_;
  bool in_metadata_ = false;
  bool had_metadata_ = false;
  // The entry being read.
  StoredTensor tensor_;
  std::array<bool, 4> had_{};  // by Field
  std::array<uint64_t, 2> offsets_{};
  size_t offset_count_ = 0;
  Field field_ = Field::none;  // whose elements are being read
};

void HeaderEntries::take(const JsonEvent& e) {
  if (e.depth == 0) {
    if (e.kind != Kind::object && e.kind != Kind::end) {
      fail(ErrorKind::refused, "{}: the header must be a JSON object", where_);
    }
  } else if (in_metadata_) {
    take_metadata(e);
  } else if (e.depth == 1 && e.kind == Kind::end) {
    end_entry();
  } else if (e.depth == 1) {
    begin_entry(e);
  } else if (e.depth == 2) {
    take_field(e);
  } else if (e.depth == 3 && field_ != Field::none) {
    take_element(e);
  }
}

void HeaderEntries::take_metadata(const JsonEvent& e) {
  if (e.depth == 1) {
    in_metadata_ = false;  // its end
  } else if (e.kind != Kind::string) {
    fail(ErrorKind::refused,
         "{}: __metadata__ must map strings to strings, but {} is something else", where_,
         printable(e.key));
  }
}

void HeaderEntries::begin_entry(const JsonEvent& e) {
  tensor_ = {};
  tensor_.name = e.key;
  had_ = {};
  offset_count_ = 0;
  field_ = Field::none;
  if (e.key == "__metadata__") {
    if (std::exchange(had_metadata_, true)) refuse("the name is there twice");
    if (e.kind != Kind::object) refuse("must be a JSON object of strings");
    in_metadata_ = true;
  } else if (e.kind != Kind::object) {
    refuse("its entry in the header must be a JSON object");
  }
}

void HeaderEntries::end_entry() {
  constexpr std::array<std::string_view, 4> kNames{"", "dtype", "shape", "data_offsets"};
  for (size_t field = 1; field < kNames.size(); ++field) {
    if (!had_[field]) refuse(fmt::format("has no {}", kNames[field]));
  }
  if (offset_count_ != 2) refuse("data_offsets must be two numbers: begin and end");
  if (offsets_[1] < offsets_[0]) {
    refuse(fmt::format("data_offsets end ({}) before they begin ({})", offsets_[1], offsets_[0]));
  }
  tensor_.offset = offsets_[0];
  tensor_.bytes = offsets_[1] - offsets_[0];
  tensors_.push_back(std::move(tensor_));
}

void HeaderEntries::take_field(const JsonEvent& e) {
  field_ = Field::none;  // at the end of one, too, and for those that the reference ignores
  if (e.key == "dtype") {
    begin_field(Field::dtype, e, Kind::string, "a string");
    take_dtype(e.text);
  } else if (e.key == "shape") {
    begin_field(Field::shape, e, Kind::array, "a list of integers");
  } else if (e.key == "data_offsets") {
    begin_field(Field::data_offsets, e, Kind::array, "a list of two integers");
  }
}

void HeaderEntries::begin_field(Field field, const JsonEvent& e, Kind expected,
                                std::string_view what) {
  if (std::exchange(had_[static_cast<size_t>(field)], true)) {
    refuse(fmt::format("has {} twice", e.key));
  }
  if (e.kind != expected) refuse(fmt::format("{} must be {}", e.key, what));
  field_ = field;
}

void HeaderEntries::take_element(const JsonEvent& e) {
  bool shape = field_ == Field::shape;
  std::string_view what = shape ? "shape" : "data_offsets";
  if (e.kind == Kind::negative) refuse(fmt::format("{} has a negative number", what));
  if (e.kind == Kind::fraction) {
    refuse(fmt::format("{} has a number that is not an integer of at most 64 bits", what));
  }
  if (e.kind != Kind::natural) refuse(fmt::format("{} must be a list of integers", what));
  if (shape) {
    if (e.number > static_cast<uint64_t>(INT64_MAX)) {
      refuse(fmt::format("the dimension {} overflows 63 bits", e.number));
    }
    if (!tensor_.shape.push_back(static_cast<int64_t>(e.number))) {
      refuse(fmt::format("has too many dimensions (more than {})", Shape::kMaxDims));
    }
  } else {
    if (offset_count_ == offsets_.size()) refuse("has more than two data_offsets");
    offsets_[offset_count_++] = e.number;
  }
}

void HeaderEntries::take_dtype(std::string_view name) {
  std::optional<DType> dtype = parse_dtype(name);
  if (!dtype) refuse(fmt::format("has unknown dtype {}", printable(name)));
  tensor_.dtype = *dtype;
}

uint64_t decode_length(std::string_view bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return length;
}

// Its length, which the first bytes of the file say.
uint64_t header_length(const Fd& fd, const CheckpointFile& file, const std::string& where) {
  std::string first(std::min<uint64_t>(file.size, 64), '\0');
  read_exactly(fd, file.path, 0, first);
  if (file.size < kLengthBytes) {
    fail(ErrorKind::refused,
         "{}: not a safetensors file: it has {} bytes, but a header needs at least {}", where,
         file.size, kLengthBytes);
  }
  uint64_t length = decode_length(first);
  if (length > file.size - kLengthBytes) {
    fail(ErrorKind::refused,
         "{}: not a complete safetensors file: the header length {} is larger than the file ({} "
         "bytes){}",
         where, length, file.size, guess_content(first));
  }
  if (length > kMaxHeaderBytes) {
    fail(ErrorKind::refused,
         "{}: not a safetensors file: the header length {} is above the format's limit of {} bytes"
         "{}",
         where, length, kMaxHeaderBytes, guess_content(first));
  }
  if (length == 0) fail(ErrorKind::refused, "{}: the header is empty", where);
  if (first[kLengthBytes] != '{') {
    fail(ErrorKind::refused, "{}: the header is not valid JSON: it must begin with '{{'", where);
  }
  return length;
}

// The header, whatever it holds of metadata, is never in memory as a whole.
void read_header(const Fd& fd, const std::filesystem::path& path, uint64_t length,
                 const std::string& where, HeaderEntries& entries) {
  constexpr uint64_t kPiece = 64 * KiB;  // whole pages on every machine: only these can be dropped
  std::string piece;
  uint64_t at = kLengthBytes;
  auto next = [&]() -> std::string_view {
    const uint64_t end = kLengthBytes + length;
    piece.resize(std::min(end, round_down(at + kPiece, kPiece)) - at);
    read_exactly(fd, path, at, piece);
    posix_fadvise(fd.get(), static_cast<off_t>(round_down(at, kPiece)), kPiece,
                  POSIX_FADV_DONTNEED);
    at += piece.size();
    return piece;
  };
  read_json_events(next, where + ": header", kMaxDepth,
                   [&](const JsonEvent& e) { entries.take(e); });
}

void check_unique_names(const std::vector<StoredTensor>& tensors, const std::string& where) {
  std::unordered_set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    fail(ErrorKind::refused, "{}: tensor {}: the name is there twice", where,
         printable(tensor.name));
  }
}

// The tensors' data must follow each other without a hole up to the end of the file.
void check_coverage(const std::vector<StoredTensor>& tensors, uint64_t data_begin,
                    uint64_t file_size, const std::string& where) {
  uint64_t end = data_begin;
  const StoredTensor* previous = nullptr;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.offset > end) {
      fail(ErrorKind::refused, "{}: tensor {}: there is a hole of {} bytes before its data", where,
           printable(tensor.name), tensor.offset - end);
    }
    if (tensor.offset < end) {
      fail(ErrorKind::refused, "{}: tensor {}: its data overlaps that of {}", where,
           printable(tensor.name), printable(previous->name));
    }
    end = tensor.offset + tensor.bytes;
    previous = &tensor;
  }
  if (end != file_size) {
    fail(ErrorKind::refused, "{}: there are {} bytes after the last tensor", where,
         file_size - end);
  }
}

}  // namespace

TensorFile read_safetensors_header(const std::filesystem::path& path, std::string name) {
  Fd fd = open_resolved(path);
  // Without read-ahead, so that the start of the data does not enter the page cache.
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  TensorFile result{.file = describe_file(fd, path, std::move(name)), .tensors = {}};
  std::string where = printable(path.string());
  if (!path.string().ends_with(result.file.name))  // a link has another name
    where = fmt::format("{} (a link to {})", printable(result.file.name), where);
  const uint64_t length = header_length(fd, result.file, where);
  HeaderEntries entries(where);
  read_header(fd, result.file.path, length, where, entries);
  result.tensors = std::move(entries).tensors();

  check_unique_names(result.tensors, where);
  uint64_t data_begin = kLengthBytes + length;
  for (StoredTensor& tensor : result.tensors) {
    if (__builtin_add_overflow(tensor.offset, data_begin, &tensor.offset)) {
      tensor.offset = UINT64_MAX;  // beyond the end of any file
    }
    check_tensor(tensor, result.file);
  }
  std::sort(result.tensors.begin(), result.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  check_coverage(result.tensors, data_begin, result.file.size, where);
  return result;
}

}  // namespace sluice::io
