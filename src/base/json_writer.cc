#include "src/base/json_writer.h"

#include <algorithm>
#include <utility>

namespace sluice {

void JsonWriter::break_line(size_t levels) {
  if (indent_ < 0) return;
  buffer_ += '\n';
  buffer_.append(levels * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::begin_value() {
  if (buffer_.size() >= kPiece) flush();
  if (std::exchange(after_key_, false) || filled_.empty()) return;
  if (filled_.back()) buffer_ += ',';
  filled_.back() = true;
  break_line(filled_.size());
}

void JsonWriter::begin(char bracket) {
  begin_value();
  buffer_ += bracket;
  filled_.push_back(false);
}

void JsonWriter::end(char bracket) {
  bool filled = filled_.back();
  filled_.pop_back();
  if (filled) break_line(filled_.size());
  buffer_ += bracket;
}

void JsonWriter::key(std::string_view name) {
  text({name});
  buffer_ += indent_ < 0 ? ":" : ": ";
  after_key_ = true;
}

template <class SomeJson>
void JsonWriter::write(const SomeJson& json) {
  if (json.is_object()) {
    begin_object();
    for (const auto& [name, member] : json.items()) {
      key(name);
      write(member);
    }
    end_object();
  } else if (json.is_array()) {
    array(json, [this](const SomeJson& element) { write(element); });
  } else if (json.is_string()) {
    text({json.template get_ref<const std::string&>()});
  } else {
    raw(json.dump());
  }
}
template void JsonWriter::write(const Json& json);
template void JsonWriter::write(const nlohmann::ordered_json& json);

void JsonWriter::value(const Json& json) { write(json); }

void JsonWriter::raw(std::string_view json) {
  begin_value();
  buffer_ += json;
}

void JsonWriter::object(const Json& members, std::vector<Part> parts) {
  std::ranges::sort(parts, {}, &Part::name);
  auto next = parts.begin();
  auto write_before = [&](std::string_view name) {
    for (; next != parts.end() && (name.empty() || next->name < name); ++next) {
      key(next->name);
      next->write();
    }
  };
  begin_object();
  for (const auto& [name, value] : members.items()) {
    write_before(name);
    member(name, value);
  }
  write_before({});
  end_object();
}

void JsonWriter::text(std::initializer_list<std::string_view> parts) {
  begin_value();
  buffer_ += '"';
  for (std::string_view part : parts) append_escaped(part);
  buffer_ += '"';
}

// Appends in pieces, as an escaped text may be six times as long.
void JsonWriter::append_escaped(std::string_view text) {
  constexpr size_t kPart = 4096;
  auto plain = [](char c) { return c >= 0x20 && c != '"' && c != '\\'; };  // and ASCII
  while (!text.empty()) {
    size_t length = std::min(text.size(), kPart);
    auto inside = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
    // The cut is never in the middle of a UTF-8 sequence, which has at most three bytes after its
    // first.
    for (int i = 0; i < 3 && length < text.size() && inside(length); ++i) --length;
    std::string_view part = text.substr(0, length);
    if (std::ranges::all_of(part, plain)) {
      buffer_ += part;
    } else {
      std::string escaped = Json(part).dump(-1, ' ', false, Json::error_handler_t::replace);
      buffer_.append(escaped, 1, escaped.size() - 2);
    }
    text.remove_prefix(length);
    if (buffer_.size() >= kPiece) flush();
  }
}

void JsonWriter::flush(std::string_view after) {
  buffer_ += after;
  sink_(buffer_);
  buffer_.clear();
}

}  // namespace sluice
