// Models at an address that is not the hub's: a directory with a checkpoint's files, or a GGUF
// file. Their files are fetched into a directory of the program's own cache:
//
//   $XDG_CACHE_HOME/sluice/models/NAME-HASH/FILE   FILE.incomplete: not all of it yet
//   $XDG_CACHE_HOME/sluice/models/NAME-HASH/.source.json   where it is from, and the state of each
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/hub/pull.h"

namespace sluice {

struct WebAddress {
  std::string directory;  // with a slash at its end
  std::string file;       // a GGUF file in it; empty: the model is the directory
  std::string query;      // "?KEY", behind the address of each file; not shown

  std::string text() const { return directory + file; }
};

// nullopt: `text` has not the form of an address, or is the hub's (parse_hub_name). The address of
// another file of a model stands for its directory.
std::optional<WebAddress> parse_web_address(std::string_view text);

// The model's place in the cache, whether or not it is there. Throws Error(usage) without a cache.
std::filesystem::path web_cache(const WebAddress& address);
// Returns what the loaders open, where all of the model is here.
std::optional<std::filesystem::path> find_web_model(const WebAddress& address);
// Fetches what is missing, and what has changed on the server since; continues transfers that ended
// early where the server still has the same contents, by ETag or Last-Modified. Errors of the
// connection are tried again. Throws Error(refused) where there is no model, and Error(runtime) for
// a connection that does not come back, a full disk and an interruption.
std::filesystem::path fetch_web_model(const WebAddress& address, PullProgress& progress,
                                      const std::stop_token& stop);
// A model of an address that is here, perhaps a part of it only.
struct WebModel {
  std::string address;
  std::filesystem::path directory;
  uint64_t bytes = 0;  // of its files
  bool is_complete = false;
};
// Sorted by address; none where there is no cache.
std::vector<WebModel> list_web_models();
// Removes what is here of it. Returns the bytes removed. Throws Error(refused) where nothing is.
uint64_t remove_web_model(const WebAddress& address);

}  // namespace sluice
