// model.safetensors.index.json: which file of a sharded checkpoint holds which tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::io {

struct Shard {
  std::string file;                  // relative to the checkpoint's directory
  std::vector<std::string> tensors;  // names, sorted; at least one
};

struct ShardIndex {
  std::vector<Shard> shards;           // in the order of file names
  std::optional<uint64_t> total_size;  // what metadata.total_size claims
};

// `where` names the file in errors. Only names of files inside the checkpoint's directory are
// accepted. Throws Error(refused).
ShardIndex parse_shard_index(std::string_view text, const std::string& where);

// The fault of a file's name that comes from a file ("is absolute", ...); empty: it has none.
std::string_view path_fault(std::string_view path);

}  // namespace sluice::io
