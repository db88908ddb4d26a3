// The hub's cache on this machine, in the layout that huggingface_hub gives it, so that all
// programs share what one of them has fetched:
//
//   models--ORG--NAME/refs/REVISION           the commit that a branch or tag stood for
//   models--ORG--NAME/blobs/HASH              contents; HASH.incomplete: not all of them yet
//   models--ORG--NAME/snapshots/COMMIT/FILE   links to the contents
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_directory.h"
#include "src/hub/name.h"

namespace sluice {

// $HF_HOME, or $XDG_CACHE_HOME/huggingface, or ~/.cache/huggingface; empty where the environment
// has none of them.
std::filesystem::path hub_home();
// $HF_HUB_CACHE, or "hub" in hub_home(); empty where the environment has neither.
std::filesystem::path hub_cache();

// A repository in the cache.
struct CachedModel {
  HubName name;
  std::string commit;
  std::filesystem::path snapshot;
  std::vector<std::string> files;    // that are here, relative to the snapshot; sorted
  uint64_t bytes = 0;                // of them
  std::vector<std::string> missing;  // weight files that its index names and that are not here
  std::string fault;                 // why the index cannot be read; empty: it can
  bool has_weights = false;
};

// Advice for who has not got a model, or a part of it: the end of a sentence.
std::string how_to_fetch(const HubName& name);
// Returns the repository's place in the cache, whether or not it is there.
std::filesystem::path cached_repository(const std::filesystem::path& cache, const HubName& name);
// The name that `text` has, or, where the cache has such a repository, a name without an owner.
std::optional<HubName> name_in_cache(const std::filesystem::path& cache, std::string_view text);
// nullopt: no snapshot of the revision is in the cache. `links`: as of ModelDirectory.
std::optional<CachedModel> find_cached(const std::filesystem::path& cache, const HubName& name,
                                       io::OutsideLinks links = io::OutsideLinks::refused);
// A model for each revision that a name stands for, sorted by name.
std::vector<CachedModel> list_cached(const std::filesystem::path& cache);
// Removes a directory with all that is in it. Returns the bytes removed. Throws Error(runtime).
uint64_t remove_tree(const std::filesystem::path& directory);
// Removes the repository with all its revisions. Returns the bytes removed [bytes].
uint64_t remove_cached(const std::filesystem::path& cache, const HubName& name);

// Says what of a model must be here.
enum class ModelParts : uint8_t { all, without_weights };

// Finds what the verbs take as MODEL: `text` itself where it is a path that exists; else the
// snapshot that it names in the hub's cache, or what has been fetched from an address. A directory
// of the cache stands for the snapshot of its main branch, and a directory or snapshot without
// config.json for the GGUF file in it. Throws Error(refused) that says what to type where the
// model, or a part of it, is missing.
std::filesystem::path find_model(const std::string& text,
                                 io::OutsideLinks links = io::OutsideLinks::refused,
                                 ModelParts parts = ModelParts::all);

}  // namespace sluice
