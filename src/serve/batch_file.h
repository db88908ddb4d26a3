// The files of OpenAI's batch API: a request a line in, a response a line out, matched by their
// custom_id.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "src/base/json.h"

namespace sluice {

struct BatchLine {
  std::string where;  // "FILE, line N"
  std::string custom_id;
  std::string url;
  Json body;
};

// Error(refused) that names the line for one that is no request, or has an id that was there.
std::vector<BatchLine> read_batch(const std::filesystem::path& path);

// Lines are written as they come, whole ones only: what a kill has left of one is cut off by the
// next start, which goes on with the requests that have no line yet.
class BatchOutput {
 public:
  // Error(refused) for a file whose lines are no responses; Error(runtime) when it cannot be
  // written.
  explicit BatchOutput(std::filesystem::path path);
  const std::set<std::string>& done() const { return done_; }
  void add(const BatchLine& request, int status, const Json& body);

 private:
  std::filesystem::path path_;
  std::set<std::string> done_;
  std::ofstream file_;
};

}  // namespace sluice
