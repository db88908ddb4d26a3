// A checkpoint cut for so many ranks (vLLM's sharded_state): each rank has files of its own, whose
// tensors are its parts, in the format of the checkpoint. They have the names of the checkpoint's;
// but where no weight is stored quantized, q, k and v are one tensor, qkv_proj, and gate and up
// another, gate_up_proj, as in vLLM. The files of a GGUF model are GGUF, with all of its metadata.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>

#include "io/checkpoint/gguf.h"
#include "src/models/registry.h"

namespace sluice {

// The name of a rank's file.
std::string sharded_state_file(int rank, bool is_gguf = false);
// Writes the file of the model's rank. `model` has been built for that rank from the tensors of
// `index`, those of `gguf` where that is not null. `block`: for what is copied. Throws
// Error(refused) where a rank would have a part of a number that weights share, Error(runtime)
// where files cannot be read or written.
void write_sharded_state(Model& model, const io::CheckpointIndex& index,
                         const io::GgufCheckpoint* gguf, const std::filesystem::path& file,
                         std::span<std::byte> block, const std::stop_token& stop);

}  // namespace sluice
