// Tiny random Llama checkpoints, as a hub would publish them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

namespace sluice::test {

struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "BF16";
  std::string bytes;
};

// Bytes of `count` bf16 values.
std::string random_bf16(Random& random, int64_t count, float sigma);

// One safetensors file; tensors lie in the order given.
std::string safetensors_bytes(const std::vector<TinyTensor>& tensors);

Json tiny_config();

// The tensors that `config` asks for, in the checkpoint's usual order, with random BF16 values.
std::vector<TinyTensor> tiny_tensors(const Json& config, Random& random);

// Writes config.json and `shards` files (an index when there are several) into `dir`.
void write_checkpoint(const std::filesystem::path& dir, const Json& config,
                      const std::vector<TinyTensor>& tensors, size_t shards = 1);

}  // namespace sluice::test
