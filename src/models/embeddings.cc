#include "src/models/embeddings.h"

#include "io/checkpoint/read_tensors.h"
#include "src/base/log.h"

namespace sluice {
namespace {

// Null where there is none, or an empty one.
const io::StoredTensor* find(const io::CheckpointIndex& index, std::string_view name) {
  const io::StoredTensor* tensor = index.find(name);
  return tensor != nullptr && tensor->bytes > 0 ? tensor : nullptr;
}

}  // namespace

void choose_embeddings(DecoderConfig& config, const io::CheckpointIndex& index) {
  constexpr std::string_view kHead = "lm_head.weight";
  const io::StoredTensor* head = find(index, kHead);
  if (!config.tie_word_embeddings || head == nullptr) return;
  const io::StoredTensor* embedding = find(index, config.embedding_tensor);
  if (embedding == nullptr) {
    config.embedding_tensor = kHead;
  } else if (!io::same_contents(index, *embedding, *head)) {
    config.tie_word_embeddings = false;
    log::warning(
        "config.json: tie_word_embeddings is true, but the checkpoint has an {} that differs from "
        "{}: it is used",
        kHead, config.embedding_tensor);
  }
}

}  // namespace sluice
