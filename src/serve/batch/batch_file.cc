#include "src/serve/batch/batch_file.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr uint64_t kTextBytes = 32;  // for each of a text: copies, and what encoding takes

constexpr std::string_view kOfRequest = "batch_req_";
constexpr std::string_view kOfLine = "batch_line_";

// Fills in what the line says. Error(refused) for what is no request.
void read_line(std::string_view text, BatchLine& line) {
  std::optional<std::string> repeated;
  OrderedJson json = parse_ordered(text, line.where, &repeated);
  const OrderedFields fields(json, line.where);
  if (fields.has("custom_id")) line.custom_id = round_integers(fields.raw("custom_id"));
  if (line.custom_id.is_null()) fail(ErrorKind::refused, "{}: custom_id is missing", line.where);
  if (!line.custom_id.is_string())
    fail(ErrorKind::refused, "{}: custom_id must be a string", line.where);
  line.id = fmt::format("{}{}", kOfRequest, line.custom_id.get_ref<const std::string&>());
  if (repeated) refuse_repeated_key(*repeated, line.where);
  if (fields.string_or("method", "POST") != "POST")
    fail(ErrorKind::refused, "{}: method must be POST", line.where);
  if (std::string url = fields.string("url"); url != "/v1/completions")
    fail(ErrorKind::refused,
         "{}: url {:?} is not supported; use /v1/completions (sluice render makes prompts of "
         "messages)",
         line.where, url);
  fields.raw("body");
  line.body = std::move(json["body"]);
}

}  // namespace

BatchLine parse_batch_line(std::string_view text, const std::string& file, uint64_t number) {
  BatchLine line = faulty_batch_line(file, number, {});
  try {
    read_line(text, line);
  } catch (const Error& e) {
    line.fault = e.what();
  }
  return line;
}

BatchLine faulty_batch_line(const std::string& file, uint64_t number, std::string fault) {
  BatchLine line;
  line.where = fmt::format("{}, line {}", file, number);
  line.id = id_of_batch_line(number);
  line.fault = std::move(fault);
  return line;
}

void make_repeated(BatchLine& line, uint64_t number) {
  line.id = id_of_batch_line(number);
  line.body = nullptr;
  line.fault = fmt::format("{}: custom_id {} was there before; each must be another", line.where,
                           line.custom_id.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string id_of_batch_line(uint64_t number) { return fmt::format("{}{}", kOfLine, number); }

std::string batch_response_id(const std::string& id, const std::string& custom_id) {
  return id.starts_with(kOfLine) ? id : fmt::format("{}{}", kOfRequest, custom_id);
}

Digest digest_of(std::string_view id) { return digest128(std::as_bytes(std::span(id))); }

uint64_t encode_bytes(std::string_view text) { return kTextBytes * text.size(); }

// By what is in it, without parsing it. Lists and objects grow by doubling, so that the old and the
// new one are there at once.
uint64_t parse_bytes(std::string_view line) {
  constexpr uint64_t kLine = 3;     // bytes for each of the line: its copies
  constexpr uint64_t kValue = 64;   // for each value in a list, its token id included
  constexpr uint64_t kOpened = 64;  // for a list, an object or a text more
  constexpr uint64_t kMember = 112;
  uint64_t bytes = line.size() * kLine + kValue;
  for (size_t at = 0; at < line.size(); ++at) {
    switch (line[at]) {
      case ',':
        bytes += kValue;
        break;
      case ':':
        bytes += kMember;
        break;
      case '[':
      case '{':
        bytes += kValue + kOpened;
        break;
      case '"': {
        size_t begin = at;
        for (++at; at < line.size() && line[at] != '"'; ++at) at += line[at] == '\\' ? 1 : 0;
        bytes += kOpened + (at - begin) * kTextBytes;
        break;
      }
      default:
        break;
    }
  }
  return bytes;
}

}  // namespace sluice
