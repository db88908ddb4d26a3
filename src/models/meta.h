// Checkpoints as Meta and Mistral publish them: consolidated.* with names of their own, and
// params.json.
// https://github.com/meta-llama/llama-models/blob/main/models/llama3/args.py
#pragma once

#include <filesystem>
#include <memory>

#include "src/models/source.h"

namespace sluice {

// Returns whether the weights that are read of `directory` are such, with a params.json.
bool is_meta_model(const std::filesystem::path& directory);

// `files` reads all that is not special of the directory.
std::unique_ptr<ModelSource> open_meta_model(io::ModelDirectory directory,
                                             std::unique_ptr<ModelSource> files);

}  // namespace sluice
