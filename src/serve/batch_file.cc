#include "src/serve/batch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOfRequest = "batch_req_";
constexpr std::string_view kOfLine = "batch_line_";

// What a kill could have left of a response's line.
bool is_beginning(std::string_view rest) {
  constexpr std::string_view kBegin = R"({"custom_id":)";
  size_t length = std::min(rest.size(), kBegin.size());
  return rest.substr(0, length) == kBegin.substr(0, length);
}

// Calls visit(line, number) for each line that is not empty.
template <class Visit>
void each_line(std::string_view text, Visit visit) {
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) visit(line, number);
    at = end + 1;
  }
}

// Fills in what the line says. Error(refused) for what is no request.
void read_line(std::string_view text, std::set<std::string>& ids, BatchLine& line) {
  Json json = parse_json(text, line.where);
  JsonFields fields(json, line.where);
  if (fields.has("custom_id")) line.custom_id = fields.raw("custom_id");
  std::string id = fmt::format("{}{}", kOfRequest, fields.string("custom_id"));
  if (!ids.insert(id).second) {
    fail(ErrorKind::refused, "{}: custom_id {:?} was there before; each must be another",
         line.where, fields.string("custom_id"));
  }
  line.id = std::move(id);
  if (fields.string_or("method", "POST") != "POST")
    fail(ErrorKind::refused, "{}: method must be POST", line.where);
  if (std::string url = fields.string("url"); url != "/v1/completions") {
    fail(ErrorKind::refused, "{}: url {:?} is not served; /v1/completions is", line.where, url);
  }
  line.body = fields.raw("body");
}

// What identifies the response of a line of an output.
std::string response_id(const JsonFields& response) {
  std::string id = response.string_or("id", "");
  return id.starts_with(kOfLine) ? id
                                 : fmt::format("{}{}", kOfRequest, response.string("custom_id"));
}

}  // namespace

std::vector<BatchLine> read_batch(const fs::path& path, const std::stop_token& stop) {
  std::vector<BatchLine> lines;
  std::set<std::string> ids;
  std::string text = io::read_stream(path, stop);
  each_line(text, [&](std::string_view line, size_t number) {
    BatchLine& read = lines.emplace_back();
    read.where = fmt::format("{}, line {}", path.string(), number);
    read.id = fmt::format("{}{}", kOfLine, number);
    try {
      read_line(line, ids, read);
    } catch (const Error& e) {
      read.fault = e.what();
    }
  });
  return lines;
}

BatchOutput::BatchOutput(fs::path path, const std::stop_token& stop) {
  if (path == "/dev/stdout") path = "-";  // whatever it goes to
  std::error_code error;
  fs::file_type type = path == "-" ? fs::file_type::unknown : fs::status(path, error).type();
  if (type == fs::file_type::regular || type == fs::file_type::directory) {
    std::string text = io::read_stream(path, stop);
    size_t whole = text.find_last_of('\n') + 1;  // npos + 1: nothing
    if (!is_beginning(std::string_view(text).substr(whole)))
      fail(ErrorKind::refused, "{}: is something else than the output of a batch", path.string());
    text.resize(whole);
    each_line(text, [&](std::string_view line, size_t number) {
      std::string where = fmt::format("{}, line {}", path.string(), number);
      Json json = parse_json(line, where);
      JsonFields fields(json, where);
      if (!fields.has("response")) fail(ErrorKind::refused, "{}: is no response of a batch", where);
      done_.insert(response_id(fields));
    });
    fs::resize_file(path, whole, error);
    if (error)
      fail(ErrorKind::runtime, "{}: cannot be written: {}", path.string(), error.message());
  }
  file_.emplace(std::move(path), stop);
}

void BatchOutput::add(const BatchLine& line, int status, const Json& body) {
  Json response{{"id", line.id},
                {"custom_id", line.custom_id},
                {"response", {{"status_code", status}, {"request_id", line.id}, {"body", body}}},
                {"error", nullptr}};
  file_->write(response.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace sluice
