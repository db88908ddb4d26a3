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

void choose_embeddings(DecoderSpec& spec, const io::CheckpointIndex& index,
                       const StoredFormats& formats) {
  const std::string head_name = spec.head + ".weight", table_name = spec.embedding + ".weight";
  const io::StoredTensor* head = find(index, head_name);
  if (formats.has_codes(head_name)) spec.tie_word_embeddings = false;
  if (!spec.tie_word_embeddings || head == nullptr) return;
  const io::StoredTensor* embedding = find(index, table_name);
  if (embedding == nullptr) {
    spec.embedding_from_head = true;
  } else if (!io::same_contents(index, *embedding, *head)) {
    spec.tie_word_embeddings = false;
    log::warning(
        "config.json: tie_word_embeddings is true, but the checkpoint has an {} that differs from "
        "{}: it is used",
        head_name, table_name);
  }
}

void leave_out_head(DecoderSpec& spec, const StoredFormats& formats) {
  if (!spec.tie_word_embeddings) spec.has_head = formats.has(spec.head + ".weight");
}

}  // namespace sluice
