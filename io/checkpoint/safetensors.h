// The safetensors format: 8 bytes little-endian header length, a JSON header, then the data of all
// tensors without holes. https://github.com/huggingface/safetensors
#pragma once

#include <filesystem>
#include <string>

#include "io/checkpoint/index.h"

namespace sluice::io {

// Reads and checks the header of the file at `path`; `name` is what the checkpoint calls it. As
// strict as the reference implementation: every byte behind the header belongs to one tensor.
// Throws Error(refused) naming file, tensor and fault.
TensorFile read_safetensors_header(const std::filesystem::path& path, std::string name);

}  // namespace sluice::io
