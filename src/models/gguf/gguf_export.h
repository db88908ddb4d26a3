// Models of the hub as GGUF: the inverse of the tables of architectures.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/gguf_metadata.h"
#include "src/models/chat_files.h"
#include "src/models/gguf/gguf.h"
#include "src/models/registry.h"
#include "src/text/tokenizer.h"

namespace sluice {

// A field of a tokenizer.json; null counts as absent.
template <class T>
T field_or(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : found->template get<T>();
}

// tokenizer.ggml.token_type
enum class GgufTokenType : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

// The rows that a class may be written as: its own, and those whose layers other classes have, too.
std::vector<const GgufArchitecture*> gguf_rows_for(const Model& model);

// A vector that is no tensor of the hub.
struct GgufVector {
  std::string name;
  std::vector<float> values;
};

// Keys of the model, "ARCHITECTURE.*", and vectors of factors of rotary frequencies.
// `names_windows`: the layers with a window are listed.
std::vector<GgufVector> describe_model(const GgufArchitecture& architecture, const Model& model,
                                       bool names_windows, io::GgufMetadata& metadata);

// tokenizer.*: of a tokenizer.json, with as many tokens as the embedding has rows, and chat
// templates. Error(refused) for tokenizers that GGUF cannot have.
void describe_tokenizer(const TokenizerFiles& files, const Tokenizer& tokenizer, int64_t rows,
                        const ChatFiles& chat, io::GgufMetadata& metadata);

// The GGUF name of a tensor with the hub's name; nullopt: there is none.
struct GgufFileName {
  std::string name;
  GgufNameEnd end = GgufNameEnd::same;  // slices: it is the next matrix of the tensor
};
std::optional<GgufFileName> gguf_name(const GgufArchitecture& architecture, std::string_view name);
// A tensor of a layer that has more dimensions in a file, "{}" for the layer's number: the elements
// of a row of it, or the rows of a head.
struct GgufDivision {
  std::string name;
  int64_t rows = 0;
};
std::vector<GgufDivision> gguf_divisions(const LayerSpec& layer);
// The hub's names of all tensors that a file may have, those of stacked experts in the place of the
// experts' own.
std::vector<std::string> possible_names(const GgufArchitecture& architecture, int64_t layers);

// The value of tokenizer.ggml.pre whose splits are those of a tokenizer.json; empty: none.
std::string_view find_gguf_pre(const Json& tokenizer);

}  // namespace sluice
