// Rules that make one vector of a text (an embedding) of a model's rows: what the files of an
// embedding model say of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/checkpoint/gguf.h"

namespace sluice {

// One vector for a prompt, of the rows behind the model's last norm.
enum class Pooling : uint8_t {
  last,           // that of the last token
  mean,           // of all tokens
  first,          // that of the first token ("cls")
  max,            // of each element
  weighted_mean,  // the i-th token's row counts i times
  root_mean,      // their sum over the square root of their number
};

struct EmbeddingRules {
  Pooling pooling = Pooling::last;
  bool normalized = true;    // vectors have the length 1
  std::string refusal = {};  // why the files' rules cannot be followed; empty: they can
};

// Reads modules.json, and the files that it names, as sentence-transformers writes them; the
// defaults where there is none.
EmbeddingRules read_embedding_rules(const io::ModelDirectory& directory);
// ARCHITECTURE.pooling_type.
EmbeddingRules gguf_embedding_rules(const io::GgufHeader& header, const std::string& architecture);

}  // namespace sluice
