// Multi-head latent attention (MLA, arXiv:2405.04434, 2.1), absorbed for every
// row, prompts included: a query becomes a query for the latent vectors, which
// are keys and values at once, and a head's output of latent vectors becomes
// one of values.
#include <algorithm>

#include "src/models/mixers/head_matrix.h"
#include "src/models/mixers/mixer.h"

namespace sluice {
namespace {

// The rows of all heads' keys, or values, among those of kv_up.
HeadMatrix::Rows head_rows(const MlaSpec& spec, bool keys) {
  const int64_t rows = keys ? spec.nope_dim : spec.value_dim;
  return {.source = spec.kv_up,
          .all = spec.head_rows(rows),
          .view = {.first = keys ? 0 : spec.nope_dim,
                   .group = rows,
                   .stride = spec.nope_dim + spec.value_dim},
          .inputs = spec.rank};
}

// The products of an indexer, of which every rank has all.
class Indexer : public Module {
 public:
  Indexer(const IndexerSpec& spec, int64_t query_rank, const MixerPlace& place)
      : Module(place.name(spec.query.name)), spec_(spec) {
    const auto add = [&](const LinearSpec& linear, int64_t outputs, int64_t inputs,
                         ParamRole role) {
      const std::vector<LinearPart> parts{{place.name(linear.parts.front().source), outputs}};
      return &add_child<Linear>(place.name(linear.name), parts, inputs, linear.bias, Rank{}, role);
    };
    const int64_t hidden = place.model.hidden_size;
    query_ = add(spec.query, spec.heads * spec.head_dim, query_rank, ParamRole::linear);
    key_ = add(spec.key, spec.head_dim, hidden, ParamRole::linear);
    weights_ = add(spec.weights, spec.heads, hidden, ParamRole::router);
    norm_ = &add_child<Norm>(place.name(spec.key_norm.name), spec.head_dim, spec.key_norm.params,
                             NormTensors{spec.key_norm.weight, spec.key_norm.bias});
  }
  int64_t outputs() const { return query_->outputs() + key_->outputs() + weights_->outputs(); }

  // The products that a layer chooses positions by, in columns of `all` from `at` on.
  struct Products {
    Tensor queries, keys, weights;
  };
  // `down`: the queries' inputs.
  Products multiply(const Context& context, Tensor down, Tensor x, Tensor all, int64_t at) const {
    const Tensor q = all.columns(at, query_->outputs());
    const Tensor k = all.columns(at + q.cols, key_->outputs());
    const Tensor w = all.columns(at + q.cols + k.cols, weights_->outputs());
    query_->forward(context, down, q);
    key_->forward(context, x, k);
    weights_->forward(context, x, w);
    const Tensor keys = k.columns(0, spec_.head_dim);
    norm_->forward(context.kernels, keys, keys);
    return {q.columns(0, spec_.heads * spec_.head_dim), keys, w.columns(0, spec_.heads)};
  }

 private:
  const IndexerSpec& spec_;
  Linear* query_;
  Linear* key_;
  Linear* weights_;
  const Norm* norm_;
};

class Mla final : public Mixer {
 public:
  Mla(const MlaSpec& spec, const MixerPlace& place);
  // Keys of an indexer are a latent cache whose values are not read.
  std::vector<KvSpec> kv_specs() const override {
    std::vector<KvSpec> specs{
        {.kind = KvKind::latent, .heads = 1, .key_dim = spec_.key_dim(), .value_dim = spec_.rank}};
    if (indexer_ == nullptr) return specs;
    const int64_t dim = spec_.indexer->head_dim;
    specs.push_back({.kind = KvKind::latent, .heads = 1, .key_dim = dim, .value_dim = dim});
    return specs;
  }
  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override;

 private:
  // The columns of a step's matrix that each product has.
  struct Columns {
    int64_t query_down, kv, query, latent_query, behind;
  };
  Columns columns() const;
  void rotate(const Kernels& kernels, const StepRows& step, size_t angles, Tensor heads,
              int64_t head_dim) const {
    if (spec_.rope) rotate(kernels, step, angles, heads, head_dim, *spec_.rope);
  }
  void rotate(const Kernels& kernels, const StepRows& step, size_t angles, Tensor heads,
              int64_t head_dim, RopePairing pairing) const;
  // Returns queries for latent vectors, each with the rotated part behind it.
  Tensor queries(const Context& context, const StepRows& step, Tensor all, Tensor x) const;
  // Returns the latent vectors, each with the shared key behind it.
  Tensor keys(const Context& context, const StepRows& step, Tensor all, Tensor x) const;
  // Chooses the positions that rows attend to; `all` has the queries of lower rank.
  void choose(const Context& context, const MixerStep& step, const Activations& act, Tensor all,
              Tensor x) const;

  const MlaSpec& spec_;
  std::vector<Share> angles_;  // the columns of each rope in a step's cos and sin
  int64_t heads_;              // of this rank
  Linear* query_down_ = nullptr;
  const Norm* query_norm_ = nullptr;
  Linear* query_;
  Linear* kv_down_;
  const Norm* kv_norm_;
  const HeadMatrix* keys_;
  const HeadMatrix* values_;
  Linear* gate_ = nullptr;  // or none
  Linear* output_;
  const Indexer* indexer_ = nullptr;
};

Mla::Mla(const MlaSpec& spec, const MixerPlace& place)
    : Mixer(place.name(spec.name)), spec_(spec), heads_(spec.head_rows(1).share(place.rank).count) {
  const DecoderSpec& model = place.model;
  for (size_t i = 0; i < model.ropes.size(); ++i) angles_.push_back(model.angle_columns(i));
  const auto add = [&](const LinearSpec& linear, int64_t outputs, int64_t inputs, Shard shard) {
    const PartSpec& part = linear.parts.front();
    const std::vector<LinearPart> parts{{place.name(part.source), outputs, shard, part.view}};
    return &add_child<Linear>(place.name(linear.name), parts, inputs, linear.bias, place.rank);
  };
  const auto add_norm = [&](const NormSpec& norm, int64_t size) {
    return &add_child<Norm>(place.name(norm.name), size, norm.params,
                            NormTensors{norm.weight, norm.bias});
  };
  int64_t inputs = model.hidden_size;
  if (spec.query_rank > 0) {
    query_down_ = add(spec.query_down, spec.query_rank, inputs, Shard::whole());
    query_norm_ = add_norm(spec.query_norm, spec.query_rank);
    inputs = spec.query_rank;
  }
  const Dimension all_queries = spec.head_rows(spec.query_dim());
  query_ = add(spec.query, all_queries.size, inputs, Shard::by_rows(all_queries));
  kv_down_ = add(spec.kv_down, spec.key_dim(), model.hidden_size, Shard::whole());
  kv_norm_ = add_norm(spec.kv_norm, spec.rank);
  const std::string kv_up = place.name(spec.kv_up);
  keys_ = &add_child<HeadMatrix>(kv_up + ".keys", head_rows(spec, true), place);
  values_ = &add_child<HeadMatrix>(kv_up + ".values", head_rows(spec, false), place);
  const Dimension all_values = spec.head_rows(spec.value_dim);
  const Dimension all_heads = spec.head_rows(1);
  if (!spec.gate.name.empty())
    gate_ = add(spec.gate, all_heads.size, model.hidden_size, Shard::by_rows(all_heads));
  output_ = add(spec.output, model.hidden_size, all_values.size, Shard::by_cols(all_values));
  if (spec.indexer) indexer_ = &add_child<Indexer>(*spec.indexer, spec.query_rank, place);
}

Mla::Columns Mla::columns() const {
  Columns c{};
  c.kv = query_down_ != nullptr ? query_down_->outputs() : 0;
  c.query = c.kv + kv_down_->outputs();
  c.latent_query = c.query + query_->outputs();
  c.behind = c.latent_query + padded_columns(heads_ * spec_.key_dim());
  return c;
}

// The first elements of each head.
void Mla::rotate(const Kernels& kernels, const StepRows& step, size_t angles, Tensor heads,
                 int64_t head_dim, RopePairing pairing) const {
  const Share& share = angles_[angles];
  kernels.rope(heads, head_dim, pairing, step.cos.columns(share.begin, share.count),
               step.sin.columns(share.begin, share.count));
}

Tensor Mla::queries(const Context& context, const StepRows& step, Tensor all, Tensor x) const {
  const Kernels& kernels = context.kernels;
  const Columns at = columns();
  const int64_t d = spec_.query_dim(), key_dim = spec_.key_dim();
  Tensor in = x;
  if (query_down_ != nullptr) {
    const Tensor down = all.columns(at.query_down, query_down_->outputs());
    query_down_->forward(context, x, down);
    in = down.columns(0, spec_.query_rank);
    query_norm_->forward(kernels, in, in);
  }
  query_->forward(context, in, all.columns(at.query, query_->outputs()));
  const Tensor q = all.columns(at.query, heads_ * d);
  if (spec_.nope_angles) rotate(kernels, step, *spec_.nope_angles, q, d);
  Tensor last = q;  // begins where the rotated part of the first head does
  last.data += spec_.nope_dim * static_cast<int64_t>(sizeof(float));
  rotate(kernels, step, spec_.query_angles, last, d);
  const Tensor latent = all.columns(at.latent_query, heads_ * key_dim);
  keys_->multiply(kernels, q, d, HeadProduct::plain, latent, key_dim, spec_.rope_dim);
  return latent;
}

Tensor Mla::keys(const Context& context, const StepRows& step, Tensor all, Tensor x) const {
  const Tensor kv = all.columns(columns().kv, kv_down_->outputs());
  kv_down_->forward(context, x, kv);
  const Tensor latent = kv.columns(0, spec_.rank);
  kv_norm_->forward(context.kernels, latent, latent);
  rotate(context.kernels, step, spec_.angles, kv.columns(spec_.rank, spec_.rope_dim),
         spec_.rope_dim);
  return kv.columns(0, spec_.key_dim());
}

void Mla::choose(const Context& context, const MixerStep& step, const Activations& act, Tensor all,
                 Tensor x) const {
  const Kernels& kernels = context.kernels;
  const IndexerSpec& spec = *spec_.indexer;
  const Columns at = columns();
  const Tensor down = all.columns(at.query_down, spec_.query_rank);
  const Indexer::Products by = indexer_->multiply(context, down, x, all, at.behind);
  for (const Tensor& heads : {by.queries, by.keys})
    rotate(kernels, step.rows, spec_.angles, heads, spec.head_dim, spec.rope);
  const LayerKv& own = step.caches[1];
  const KvRows& kv = step.rows.kv[own.group];
  kernels.store_kv(by.keys, by.keys, kv.slots, own.cache);
  kernels.choose_positions(by.queries, by.weights, own.cache, kv, act.chosen());
}

void Mla::forward(const Context& context, const MixerStep& step, const Activations& act,
                  const RowsIn& from, const RowsOut& to) const {
  const Kernels& kernels = context.kernels;
  const Tensor x = from.read(kernels);
  const LayerKv& own = step.caches.front();
  const KvRows& kv = step.rows.kv[own.group];
  const Tensor all = act.qkv(x.rows);
  const Tensor q = queries(context, step.rows, all, x), k = keys(context, step.rows, all, x);
  kernels.store_kv(k, k.columns(0, spec_.rank), kv.slots, own.cache);
  const Tensor latent = act.attention(x.rows).columns(0, heads_ * spec_.rank);
  AttentionParams params;
  params.scale = spec_.scale;
  if (indexer_ != nullptr) choose(context, step, act, all, x);
  if (spec_.chosen > 0) params.chosen = act.chosen();
  kernels.paged_attention(q, own.cache, kv, params, latent);
  const Tensor out =
      act.attention(x.rows).columns(padded_columns(heads_ * spec_.rank), heads_ * spec_.value_dim);
  values_->multiply(kernels, latent, spec_.rank, HeadProduct::transposed, out, spec_.value_dim);
  if (gate_ != nullptr) {
    const Tensor gates = all.columns(columns().behind, gate_->outputs());
    gate_->forward(context, x, gates);
    const Tensor gate = gate_->part(gates, 0);
    kernels.activate({Activation::sigmoid}, gate, {}, gate);
    kernels.scale_heads(out, gate);
  }
  output_->forward(context, out, to);
}

}  // namespace

MixerWidths MlaSpec::widths(Rank rank_of) const {
  const int64_t own = head_rows(1).share(rank_of).count;
  const int64_t index = !indexer ? 0
                                 : padded_columns(indexer->heads * indexer->head_dim) +
                                       padded_columns(indexer->head_dim) +
                                       padded_columns(indexer->heads);
  const int64_t gates = gate.name.empty() ? 0 : padded_columns(own);
  return {padded_columns(query_rank) + padded_columns(key_dim()) +
              padded_columns(own * query_dim()) + padded_columns(own * key_dim()) +
              std::max(index, gates),
          padded_columns(own * rank) + padded_columns(own * value_dim), chosen};
}

void MlaSpec::divide(Rank rank_of) {
  Dimension all = head_rows(1);
  divide_heads(all, {.size = 1}, rank_of);
}

void MlaSpec::add_workspace(Rank rank_of, WorkspaceNeeds& needs) const {
  const int64_t own = head_rows(1).share(rank_of).count;
  needs.heads = std::max(needs.heads, own);
  needs.max_cols = std::max({needs.max_cols, query_rank, own * value_dim});
  needs.key_dim = std::max(needs.key_dim, key_dim());
  needs.value_dim = std::max(needs.value_dim, rank);
  needs.head_cols = std::max(needs.head_cols, rank);
  needs.chosen = std::max(needs.chosen, chosen);
  if (indexer) needs.key_dim = std::max(needs.key_dim, indexer->head_dim);
}

std::unique_ptr<Mixer> make_mixer(const MlaSpec& spec, const MixerPlace& place) {
  return std::make_unique<Mla>(spec, place);
}

}  // namespace sluice
