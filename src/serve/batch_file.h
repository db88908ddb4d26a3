// The files of OpenAI's batch API: a request a line in, a response a line out, matched by their
// custom_id.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "io/stream.h"
#include "src/base/json.h"

namespace sluice {

struct BatchLine {
  std::string where;  // "FILE, line N"
  // Of the response: "batch_req_" and the custom_id, or "batch_line_N" where that names no request.
  // So a response is known again when the batch goes on.
  std::string id;
  Json custom_id;     // as given; null where there is none
  std::string fault;  // why this is no request; then there is no body
  Json body;
};

// A line for each that is not empty, those that are no requests included: their faults are theirs.
// `path` and errors as io::read_stream has them.
std::vector<BatchLine> read_batch(const std::filesystem::path& path, const std::stop_token& stop);

// Lines are written as they come, whole ones only: what a kill has left of one is cut off by the
// next start, which goes on with the requests that have no line yet. A pipe, a device or standard
// output has no lines to go on from, and is not read.
class BatchOutput {
 public:
  // "-" is standard output. Error(refused) for a file whose lines are no responses; Error(runtime)
  // when it cannot be written, or when `stop` is requested while it waits for a pipe's reader.
  BatchOutput(std::filesystem::path path, const std::stop_token& stop);
  bool done(const BatchLine& line) const { return done_.contains(line.id); }
  void add(const BatchLine& line, int status, const Json& body);

 private:
  std::set<std::string> done_;
  std::optional<io::OutputStream> file_;
};

}  // namespace sluice
