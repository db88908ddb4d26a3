#include "src/engine/checkpoint.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/formats/formats.h"
#include "src/plan/dummy.h"

namespace sluice {
namespace {

// Values of config.json that say nothing of the weights' shapes or of what is computed with them.
constexpr std::array kAsideInConfig{"_name_or_path", "transformers_version", "torch_dtype", "dtype",
                                    "bos_token_id",  "eos_token_id",         "pad_token_id"};

// Warns of a tokenizer with more tokens than the model has rows: it belongs to another model.
void check_vocabulary(const Tokenizer& tokenizer, int64_t vocab_size) {
  if (tokenizer.vocab_size() > vocab_size) {
    log::warning(
        "tokenizer.json: token id {} is beyond the model's vocab_size of {}; such tokens are "
        "refused in prompts",
        tokenizer.vocab_size() - 1, vocab_size);
  }
}

}  // namespace

Checkpoint::Checkpoint(const ModelPlace& place, bool needs_head, Rank rank, bool dummy)
    : Checkpoint(place, needs_head, rank, dummy, {rank.rank, rank.size}) {}

Checkpoint::Checkpoint(const ModelPlace& place, bool needs_head, Rank rank, bool dummy,
                       io::OpeningRank files, const PartRequest& part)
    : path_(place.path),
      source_(open_model(place, files)),
      model_(read_model(*source_)),
      index_(dummy ? dummy_index(*source_) : source_->index()) {
  for (const std::string& w : index_.warnings()) log::warning("{}", w);
  settle_stored_formats(model_.files.config, index_);
  build_root(model_, rank, &index_, needs_head, part);
}

DType Checkpoint::weights_dtype() const {
  if (model_.files.dtype) return *model_.files.dtype;
  auto weight = std::ranges::find_if(
      index_.tensors(), [](const io::StoredTensor& t) { return is_float_weight(t.dtype); });
  return weight == index_.tensors().end() ? DType::bf16 : weight->dtype;
}

void Checkpoint::load_tokenizer() {
  try {
    tokenizer_ = source_->tokenizer();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::refused) throw;
    tokenizer_fault_ = e.what();
    return;
  }
  if (!tokenizer_) {
    tokenizer_fault_ = Tokenizer::missing(path_) + "; give the prompt as --token-ids";
    return;
  }
  for (const std::string& w : tokenizer_->warnings()) log::warning("{}", w);
  check_vocabulary(*tokenizer_, spec().vocab_size);
  grammars_ = std::make_unique<grammar::Grammars>(*tokenizer_, spec().vocab_size);
  take_eos();
}

// A chat ends with the tokenizer's eos where the configs still have that of the model before it was
// trained to chat.
void Checkpoint::take_eos() {
  const std::optional<int32_t> eos = tokenizer_->eos_id();
  std::vector<int32_t>& ids = model_.files.eos_ids;
  if (eos && *eos < spec().vocab_size && std::ranges::find(ids, *eos) == ids.end())
    ids.push_back(*eos);
}

const Tokenizer& Checkpoint::need_tokenizer() const {
  if (!tokenizer_) fail(ErrorKind::refused, "{}", tokenizer_fault_);
  return *tokenizer_;
}

std::string Checkpoint::refusal_of(int ranks, bool needs_head) const {
  try {
    Model divided = read_model(*source_);
    build_root(divided, {0, ranks}, &index_, needs_head);
    return {};
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::usage) throw;
    return e.what();
  }
}

Json Checkpoint::config_of_results() const {
  Json config = model_.files.config;
  for (const char* key : kAsideInConfig) config.erase(key);
  return config;
}

void Checkpoint::check_same_model(const Checkpoint& other) const {
  if (other.config_of_results() == config_of_results()) return;
  fail(
      ErrorKind::refused,
      "{}: its config says another model than {} is; only weights of the same model can take their "
      "place",
      other.path_.string(), path_.string());
}

void Checkpoint::take_tensors(Checkpoint&& other) {
  path_ = std::move(other.path_);
  source_ = std::move(other.source_);
  index_ = std::move(other.index_);
}

}  // namespace sluice
