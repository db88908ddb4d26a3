// Finds the embedding and the head among the tensors of a checkpoint: config.json and the stored
// tensors both say something about them.
#pragma once

#include "io/checkpoint/index.h"
#include "src/formats/formats.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// Settles tie_word_embeddings and embedding_from_head for this checkpoint, as transformers 5 does:
//
//   tie_word_embeddings   stored                      embedding, head
//   true                  embedding                   both are the embedding
//   true                  head                        both are the head
//   true                  both, equal                 both are the embedding
//   true                  both, different             each its own, with a warning
//   true                  both, the head's codes      each its own
//   false                 whatever                    each its own; what is missing is refused
//   later
//
// Two tensors are compared by their bytes, from the beginning to the first difference.
void choose_embeddings(DecoderSpec& spec, const io::CheckpointIndex& index,
                       const StoredFormats& formats);

// An embedding model may be stored without its head, in any form: it is built without one then.
void leave_out_head(DecoderSpec& spec, const StoredFormats& formats);

}  // namespace sluice
