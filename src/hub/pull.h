// Fetches a model from the hub into the cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/hub/cache.h"
#include "src/hub/name.h"

namespace sluice {

struct PullOptions {
  HubName name;
  std::filesystem::path cache;
  std::string endpoint;              // "https://huggingface.co", without a slash at the end
  std::optional<std::string> token;  // of an account
  std::vector<std::string> include, exclude;  // patterns (files_to_fetch)
  int connections = 4;                        // files that are fetched at once
};

// Watched by a display while pull() runs.
struct PullProgress {
  std::atomic<uint64_t> total = 0;  // bytes of the files that are wanted
  std::atomic<uint64_t> done = 0;   // bytes of them that are here
  std::atomic<uint32_t> files_total = 0;
  std::atomic<uint32_t> files_done = 0;
};

// $HF_ENDPOINT, or the hub's own.
std::string hub_endpoint();
// $HF_TOKEN, or the file that huggingface_hub's login leaves.
std::optional<std::string> hub_token();

// Fetches what is missing, and continues transfers that ended early. Contents get their names in
// the cache only when their size and hash are right, and the revision its name when all files are
// there; a process that is killed leaves nothing else. Errors of the connection are tried again.
// Throws Error(refused) for a repository or revision that does not exist or needs an account,
// Error(runtime) for a connection that does not come back, a full disk, contents with another hash,
// and an interruption.
CachedModel pull(const PullOptions& options, PullProgress& progress, const std::stop_token& stop);

}  // namespace sluice
