// BaichuanForCausalLM (Baichuan, Baichuan 2): Llama's layout with q, k and v in one tensor; without
// max_position_embeddings, as those of 13B, ALiBi in the place of rope.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Defaults of the class that checkpoints bring along.
constexpr LayoutDefaults kBaichuan{.vocab_size = 64000,
                                   .hidden_size = 4096,
                                   .intermediate_size = 11008,
                                   .num_hidden_layers = 32,
                                   .num_attention_heads = 32,
                                   .max_position_embeddings = 4096,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000};

// Rows of the head of Baichuan 2, which a vocabulary of its own tells, are made as long as one
// another when it is used. Files of GGUF say with `normalized_head` that there they are not.
void refuse_normalized_head(const JsonFields& c) {
  constexpr int64_t kVocabulary = 125696;
  const bool is_second =
      c.integer_or("vocab_size", 1, kMaxVocab, kBaichuan.vocab_size) == kVocabulary;
  if (read_boolean(c, "normalized_head", is_second))
    fail(ErrorKind::refused,
         "{}: Baichuan 2's head, whose rows are normalized when it is used, is not supported; give "
         "the model as GGUF, with normalized rows",
         c.where());
}

DecoderSpec parse_baichuan(const JsonFields& c) {
  refuse_normalized_head(c);
  const bool rotates = c.has("max_position_embeddings");
  LayoutDefaults defaults = kBaichuan;
  if (!rotates) defaults.positions_key = "model_max_length";
  DecoderSpec spec = common_layout(c, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  const int64_t size = attention.heads.size;
  fuse(attention.qkv, attention.name + ".W_pack", {0, size, 2 * size});
  if (rotates) return spec;
  attention.rope = std::nullopt;
  attention.alibi = 1;
  spec.ropes.clear();
  return spec;
}

}  // namespace

std::vector<Family> baichuan_families() {
  return {{"BaichuanForCausalLM", "baichuan", parse_baichuan, {}}};
}

}  // namespace sluice
