// For programs that are built without libcurl.
#include "src/base/error.h"
#include "src/hub/pull.h"

namespace sluice {

CachedModel pull(const PullOptions& options, PullProgress&, const std::stop_token&) {
  fail(ErrorKind::usage,
       "this program is built without a way to the hub; fetch the model with: hf download {}",
       options.name.repository());
}
std::string hub_endpoint() { return {}; }
std::optional<std::string> hub_token() { return std::nullopt; }

}  // namespace sluice
