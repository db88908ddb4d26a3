// Formats of files by their first bytes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/checkpoint/index.h"

namespace sluice::io {

// Says what a file is that is not what it ought to be, with a leading "; ", or nothing.
std::string_view guess_content(std::string_view first_bytes);

// Reads the description of the tensors in the file at `path`, whatever its name: a zip archive of
// torch.save or of numpy.savez, a pickle of torch.save before 1.6, or safetensors. `name` is what
// the checkpoint calls it. Throws Error(refused) naming file, tensor and fault.
TensorFile read_tensor_file(const std::filesystem::path& path, std::string name);

}  // namespace sluice::io
