#include "src/serve/batch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    fail(ErrorKind::refused, "{}: cannot be read", path.string());
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) fail(ErrorKind::runtime, "{}: cannot be read to its end", path.string());
  return text;
}

// What a kill could have left of a response's line.
bool is_beginning(std::string_view rest) {
  constexpr std::string_view kBegin = R"({"custom_id":")";
  size_t length = std::min(rest.size(), kBegin.size());
  return rest.substr(0, length) == kBegin.substr(0, length);
}

// Calls visit(line, where) for each line that is not empty.
template <class Visit>
void each_line(const std::string& text, const std::filesystem::path& path, Visit visit) {
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      visit(line, fmt::format("{}, line {}", path.string(), number));
    at = end + 1;
  }
}

}  // namespace

std::vector<BatchLine> read_batch(const std::filesystem::path& path) {
  std::vector<BatchLine> requests;
  std::set<std::string> ids;
  each_line(read_text(path), path, [&](std::string_view line, const std::string& where) {
    Json json = parse_json(line, where);
    JsonFields fields(json, where);
    BatchLine request{where, fields.string("custom_id"), fields.string("url"), {}};
    if (fields.string_or("method", "POST") != "POST")
      fail(ErrorKind::refused, "{}: method must be POST", where);
    if (!ids.insert(request.custom_id).second) {
      fail(ErrorKind::refused, "{}: custom_id {:?} was there before; each must be another", where,
           request.custom_id);
    }
    request.body = fields.raw("body");
    requests.push_back(std::move(request));
  });
  return requests;
}

BatchOutput::BatchOutput(std::filesystem::path path) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    std::string text = read_text(path_);
    size_t whole = text.find_last_of('\n') + 1;  // npos + 1: nothing
    if (!is_beginning(std::string_view(text).substr(whole)))
      fail(ErrorKind::refused, "{}: is something else than the output of a batch", path_.string());
    text.resize(whole);
    each_line(text, path_, [&](std::string_view line, const std::string& where) {
      Json json = parse_json(line, where);
      JsonFields fields(json, where);
      if (!fields.has("response")) fail(ErrorKind::refused, "{}: is no response of a batch", where);
      done_.insert(fields.string("custom_id"));
    });
    std::error_code error;
    std::filesystem::resize_file(path_, whole, error);
    if (error)
      fail(ErrorKind::runtime, "{}: cannot be written: {}", path_.string(), error.message());
  }
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) fail(ErrorKind::runtime, "{}: cannot be written", path_.string());
}

void BatchOutput::add(const BatchLine& request, int status, const Json& body) {
  Json line{
      {"id", "batch_req_" + request.custom_id},
      {"custom_id", request.custom_id},
      {"response", {{"status_code", status}, {"request_id", request.custom_id}, {"body", body}}},
      {"error", nullptr}};
  file_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  if (!file_) fail(ErrorKind::runtime, "{}: cannot be written (is the disk full?)", path_.string());
}

}  // namespace sluice
