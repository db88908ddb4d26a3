// The files of a repository, as the hub lists them, and those that a model is run from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/hub/digest.h"
#include "src/hub/name.h"

namespace sluice {

struct HubFile {
  std::string file;  // relative to the repository; leads nowhere else
  uint64_t bytes = 0;
  std::string hash;  // names its contents in the cache
  DigestKind kind = DigestKind::git_blob;
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files;
};

// The answer to /api/models/ORG/NAME/revision/REVISION?blobs=true. Throws Error(refused).
HubListing parse_listing(const Json& answer, const std::string& where);

// The files to fetch. Patterns as of a shell, against whole names; without `include` what a model
// is run from: safetensors with their index, configs and tokenizers, or the GGUF model that the
// name's tag chooses. Throws Error(refused) where nothing is left, or a choice is to be made.
std::vector<HubFile> files_to_fetch(const HubListing& listing, const HubName& name,
                                    const std::vector<std::string>& include,
                                    const std::vector<std::string>& exclude);

}  // namespace sluice
