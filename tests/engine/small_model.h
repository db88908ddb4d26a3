// A model of little work, for tests that compare runs with one another: emulated kernels take
// long. Its shapes have tails in every kernel, and scales of two blocks.
#pragma once

#include "tests/support/checkpoint.h"

namespace sluice::test {

class SmallModel {
 public:
  // `window`: of its first layer of two; 0: none. A seed gives the same weights each time.
  explicit SmallModel(int64_t window = 0, int64_t vocab = 67, uint64_t seed = 1,
                      int64_t layers = 2) {
    Json config = tiny_config();
    config["hidden_size"] = 40;
    config["intermediate_size"] = 136;
    config["vocab_size"] = vocab;
    config["num_hidden_layers"] = layers;
    config["num_attention_heads"] = 2;
    config["num_key_value_heads"] = 1;
    config["head_dim"] = 24;
    config["tie_word_embeddings"] = true;
    if (window > 0) {
      config["architectures"] = {"MistralForCausalLM"};
      config["sliding_window"] = window;
      config["layer_types"] = {"sliding_attention", "full_attention"};
    }
    Random random(seed);
    write_checkpoint(dir_.path(), config, tiny_tensors(config, random));
  }
  const std::filesystem::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

}  // namespace sluice::test
