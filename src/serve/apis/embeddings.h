// The embeddings API of OpenAI: texts to vectors, as vLLM makes them of decoder models, by the
// rules of the model's files.
#pragma once

#include <memory>
#include <string>

#include "src/serve/apis/answer.h"
#include "src/serve/apis/completion.h"

namespace sluice {

// Each input is a prompt without a continuation, whose vector the engine makes. Throws as
// parse_completion().
struct EmbeddingsRequest {
  Completion asked;
  bool base64 = false;     // float32, little endian; else lists of numbers
  bool normalized = true;  // vectors get the length 1
};
EmbeddingsRequest parse_embeddings(const OrderedJson& body, const std::string& where,
                                   const RequestContext& context);

// Bytes that the vectors take until the answer has been sent.
uint64_t vectors_bytes(const Completion& asked, int64_t hidden_size);

std::unique_ptr<Answer> embeddings_answer(EmbeddingsRequest asked, CompletionHead head);

}  // namespace sluice
