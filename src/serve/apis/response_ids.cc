#include "src/serve/apis/response_ids.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/base/error.h"

namespace sluice {
namespace {

// Byte after byte of a line, from a file in pieces.
class LineBytes {
 public:
  LineBytes(const io::InputFile& file, uint64_t size, uint64_t longest_text)
      : file_(file), size_(size), longest_text_(longest_text) {}

  // Goes on to the next line that is not blank.
  bool next_line() {
    constexpr std::string_view kBlank = " \t\r\n";
    while (!at_file_end() && kBlank.find(piece_[at_]) != std::string_view::npos) advance();
    begin_token();
    return !at_file_end();
  }
  bool at_end() { return at_file_end() || piece_[at_] == '\n'; }
  const char& byte() const { return piece_[at_]; }
  void advance() {
    line_ += piece_[at_++] == '\n' ? 1 : 0;
    if (++token_ > longest_text_)
      fail(ErrorKind::refused, "{}: not a response of a batch: it has a text of more than {} bytes",
           where(), longest_text_);
  }
  void begin_token() { token_ = 0; }
  std::string where() const { return fmt::format("{}, line {}", file_.name(), line_); }

 private:
  bool at_file_end() {
    if (at_ < length_) return false;
    length_ = std::min<uint64_t>(piece_.size(), size_ - read_);
    file_.read(read_, std::span(piece_).first(length_));
    read_ += length_;
    at_ = 0;
    return length_ == 0;
  }

  const io::InputFile& file_;
  uint64_t size_;
  uint64_t longest_text_;
  uint64_t read_ = 0;
  uint64_t token_ = 0;  // bytes since the parser gave out something
  uint64_t line_ = 1;
  size_t at_ = 0;
  size_t length_ = 0;
  std::array<char, 1 << 14> piece_;
};

// An iterator over bytes, as the JSON parser wants it.
struct ByteIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineBytes* bytes = nullptr;  // null: the end

  reference operator*() const { return bytes->byte(); }
  ByteIterator& operator++() {
    bytes->advance();
    return *this;
  }
  bool operator==(const ByteIterator& other) const {
    return other.bytes == nullptr && bytes->at_end();
  }
};

// Has the functions that nlohmann's sax_parse calls, and keeps what identifies the response.
class Response {
 public:
  explicit Response(LineBytes& bytes) : bytes_(bytes) {}

  bool null() { return took(); }
  bool boolean(bool) { return took(); }
  bool number_integer(Json::number_integer_t) { return took(); }
  bool number_unsigned(Json::number_unsigned_t) { return took(); }
  bool number_float(Json::number_float_t, const std::string&) { return took(); }
  bool string(std::string& text) {
    if (depth_ == 1 && key_ == "id") id_ = text;
    if (depth_ == 1 && key_ == "custom_id") custom_id_ = text;
    return took();
  }
  bool binary(Json::binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return begin(); }
  bool start_array(size_t) { return depth_ > 0 && begin(); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    if (depth_ == 1) key_ = name;
    bytes_.begin_token();
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) { return false; }

  Digest id() const {
    if (!answered_) refuse();
    if (!id_.starts_with("batch_line_") && !custom_id_) refuse();
    return digest_of(batch_response_id(id_, custom_id_.value_or("")));
  }
  [[noreturn]] void refuse() const {
    fail(ErrorKind::refused, "{}: not a response of a batch", bytes_.where());
  }

 private:
  bool took() {
    if (depth_ == 1) answered_ = answered_ || key_ == "response";
    bytes_.begin_token();
    return depth_ > 0;
  }
  bool begin() {
    constexpr int kMostDepth = 64;
    took();
    return ++depth_ <= kMostDepth;
  }
  bool end() {
    --depth_;
    bytes_.begin_token();
    return true;
  }

  LineBytes& bytes_;
  int depth_ = 0;
  std::string key_;  // of the outermost object
  std::string id_;
  std::optional<std::string> custom_id_;
  bool answered_ = false;
};

}  // namespace

void read_response_ids(const io::InputFile& file, uint64_t size, uint64_t longest_text,
                       const std::function<void(const Digest&)>& visit) {
  LineBytes bytes(file, size, longest_text);
  while (bytes.next_line()) {
    Response response(bytes);
    if (!Json::sax_parse(ByteIterator{&bytes}, ByteIterator{}, &response)) response.refuse();
    visit(response.id());
  }
}

}  // namespace sluice
