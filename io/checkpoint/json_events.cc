#include "io/checkpoint/json_events.h"

#include <nlohmann/json.hpp>
#include <string>

#include "io/file.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

using Json = nlohmann::json;
using Kind = JsonEvent::Kind;

// "[...] parse error ... - invalid string: ill-formed UTF-8 byte; last read: '...'": the fault
// alone, without the quoted text, which can be long or binary.
std::string fault_of(const Json::exception& error) {
  std::string what = error.what();
  if (size_t quote = what.find("; last read"); quote != std::string::npos) what.resize(quote);
  if (size_t id = what.find("] "); id != std::string::npos) what.erase(0, id + 2);
  if (size_t dash = what.find(" - "); dash != std::string::npos) what.erase(0, dash + 3);
  return printable(what);
}

// Has the functions that nlohmann's sax_parse calls.
class Events {
 public:
  Events(std::string_view where, int max_depth, const std::function<void(const JsonEvent&)>& handle)
      : where_(where), max_depth_(max_depth), handle_(handle) {}

  bool null() { return emit(Kind::other); }
  bool boolean(bool) { return emit(Kind::other); }
  bool number_integer(Json::number_integer_t n) {
    if (n >= 0) return number_unsigned(static_cast<uint64_t>(n));
    return emit(Kind::negative);
  }
  bool number_unsigned(Json::number_unsigned_t n) { return emit(Kind::natural, {}, n); }
  bool number_float(Json::number_float_t, const std::string&) { return emit(Kind::fraction); }
  bool string(std::string& text) { return emit(Kind::string, text); }
  bool binary(Json::binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return begin(Kind::object); }
  bool start_array(size_t) { return begin(Kind::array); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& text) {
    key_ = text;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    fail(ErrorKind::refused, "{}: not valid JSON: at byte {}: {}", where_, position,
         fault_of(error));
  }

 private:
  bool emit(Kind kind, std::string_view text = {}, uint64_t number = 0) {
    handle_({kind, depth_, key_, text, number});
    key_.clear();
    return true;
  }
  bool begin(Kind kind) {
    if (depth_ == max_depth_) {
      fail(ErrorKind::refused, "{}: nested too deeply (more than {} levels)", where_, max_depth_);
    }
    emit(kind);
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return emit(Kind::end);
  }

  std::string_view where_;
  int max_depth_;
  const std::function<void(const JsonEvent&)>& handle_;
  int depth_ = 0;
  std::string key_;
};

}  // namespace

void read_json_events(std::string_view text, std::string_view where, int max_depth,
                      const std::function<void(const JsonEvent&)>& handle) {
  // The parser takes a NUL for the end of the text, and would not look at what follows.
  if (text.find('\0') != std::string_view::npos) {
    fail(ErrorKind::refused, "{}: not valid JSON: contains a NUL", where);
  }
  Events events(where, max_depth, handle);
  Json::sax_parse(text.begin(), text.end(), &events);
}

}  // namespace sluice::io
