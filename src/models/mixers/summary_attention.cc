// Attention to a window of tokens, and beside them to summaries of windows (DeepSeek-V4): all that
// there are, or those that an indexer chooses.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "src/models/mixers/head_matrix.h"
#include "src/models/mixers/mixer.h"

namespace sluice {
namespace {

// A layer of one part, of which every rank has all.
std::unique_ptr<Linear> make_whole(const LinearSpec& linear, int64_t outputs, int64_t inputs,
                                   const MixerPlace& place, ParamRole role = ParamRole::linear) {
  const std::vector<LinearPart> parts{{place.name(linear.parts.front().source), outputs}};
  return std::make_unique<Linear>(place.name(linear.name), parts, inputs, linear.bias, Rank{},
                                  role);
}

std::unique_ptr<Norm> make_norm(const NormSpec& norm, int64_t size, const MixerPlace& place) {
  return std::make_unique<Norm>(place.name(norm.name), size, norm.params,
                                NormTensors{norm.weight, norm.bias});
}

// The last elements of each head, rotated by one of the model's ropes.
void rotate_tails(const Kernels& kernels, const StepRows& step, const Share& angles, Tensor heads,
                  int64_t head_dim) {
  heads.data += (head_dim - 2 * angles.count) * static_cast<int64_t>(sizeof(float));
  kernels.rope(heads, head_dim, RopePairing::neighbours,
               step.cos.columns(angles.begin, angles.count),
               step.sin.columns(angles.begin, angles.count));
}

// The summaries of a layer, or of its indexer, and their two caches: entries, then sums.
class Summaries : public Module {
 public:
  Summaries(const SummarySpec& spec, const MixerPlace& place)
      : Module(place.name(spec.norm.name)),
        spec_(spec),
        angles_(place.model.angle_columns(spec.angles)) {
    const std::vector<Dimension> parts(2, Dimension{.size = spec.columns()});
    MixerPlace whole = place;
    whole.rank = {};
    input_ =
        &add_child<Linear>(place.name(spec.input.name), parts_by_rows(spec.input, parts, whole),
                           place.model.hidden_size, spec.input.bias, Rank{});
    const std::string bias = place.name(spec.bias);
    bias_ = &add_param(make_vector(
        bias, ParamRole::bias,
        {{.source = bias, .rows = spec.tokens * spec.columns(), .view = {.row = spec.columns()}}},
        {}, 1));
    norm_ = &adopt(make_norm(spec.norm, spec.dim, place));
  }
  int64_t columns() const { return input_->outputs() + padded_columns(spec_.dim); }
  void add_caches(std::vector<KvSpec>& specs) const {
    specs.push_back({.kind = KvKind::latent,
                     .heads = 1,
                     .key_dim = spec_.dim,
                     .value_dim = spec_.dim,
                     .tokens = spec_.tokens});
    specs.push_back({.kind = KvKind::state,
                     .heads = 1,
                     .key_dim = PoolParams{.overlaps = spec_.overlaps}.state_rows(),
                     .value_dim = spec_.dim});
  }
  // Stores those of the windows that end in a step. `room`: columns() of them.
  void store(const Context& context, const MixerStep& step, size_t first_cache, Tensor x,
             Tensor room) const {
    const Kernels& kernels = context.kernels;
    const LayerKv &entries = step.caches[first_cache], &sums = step.caches[first_cache + 1];
    const Tensor all = room.columns(0, input_->outputs());
    const Tensor keys = room.columns(all.cols, spec_.dim);
    input_->forward(context, x, all);
    const auto pages = static_cast<size_t>(state_pages(sums.state));
    kernels.pool(input_->part(all, 0), input_->part(all, 1),
                 {.bias = float_data(bias_), .tokens = spec_.tokens, .overlaps = spec_.overlaps},
                 {sums.state, step.rows.kv.subspan(sums.group, pages)}, keys);
    norm_->forward(kernels, keys, keys);
    rotate_tails(kernels, step.rows, angles_, keys, spec_.dim);
    kernels.store_kv(keys, keys, step.rows.kv[entries.group].slots, entries.cache);
  }

 private:
  const SummarySpec& spec_;
  Share angles_;  // the columns of a step's cos and sin
  Linear* input_;
  const Param* bias_;
  const Norm* norm_;
};

// Chooses the summaries that rows attend to; every rank has all of it.
class SummaryIndexer : public Module {
 public:
  SummaryIndexer(const SummaryIndexerSpec& spec, int64_t query_rank, const MixerPlace& place)
      : Module(place.name(spec.query.name)), spec_(spec) {
    summaries_ = &add_child<Summaries>(spec.keys, place);
    query_ = &adopt(make_whole(spec.query, spec.heads * spec.keys.dim, query_rank, place));
    weights_ = &adopt(
        make_whole(spec.weights, spec.heads, place.model.hidden_size, place, ParamRole::router));
  }
  const Summaries& summaries() const { return *summaries_; }
  int64_t columns() const {
    return std::max(summaries_->columns(), query_->outputs() + weights_->outputs());
  }
  // `down`: the queries' inputs. `angles`: of the rows.
  void choose(const Context& context, const MixerStep& step, size_t first_cache,
              const Share& angles, Tensor down, Tensor x, Tensor room,
              const ChosenPositions& out) const {
    const Kernels& kernels = context.kernels;
    summaries_->store(context, step, first_cache, x, room);
    const Tensor q = room.columns(0, query_->outputs()),
                 w = room.columns(q.cols, weights_->outputs());
    query_->forward(context, down, q);
    weights_->forward(context, x, w);
    const Tensor queries = q.columns(0, spec_.heads * spec_.keys.dim);
    rotate_tails(kernels, step.rows, angles, queries, spec_.keys.dim);
    const LayerKv& keys = step.caches[first_cache];
    kernels.choose_positions(queries, w.columns(0, spec_.heads), keys.cache,
                             step.rows.kv[keys.group], out);
  }

 private:
  const SummaryIndexerSpec& spec_;
  const Summaries* summaries_;
  Linear* query_;
  Linear* weights_;
};

// The caches of a mixer, in order.
enum : size_t { kOwn, kSummaries, kSums, kIndex };

class SummaryAttention final : public Mixer {
 public:
  SummaryAttention(const SummaryAttentionSpec& spec, const MixerPlace& place);
  std::vector<KvSpec> kv_specs() const override;
  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override;

 private:
  // The columns of a step's matrix that each product has.
  struct Columns {
    int64_t key, query, behind;
  };
  Columns columns() const {
    const int64_t key = down_->outputs(), query = key + key_->outputs();
    return {key, query, query + query_->outputs()};
  }
  // Stores the rows' keys and summaries, chooses among these, and attends to all.
  void attend(const Context& context, const MixerStep& step, const Activations& act, Tensor x,
              Tensor all, Tensor out) const;

  const SummaryAttentionSpec& spec_;
  int64_t heads_;  // of this rank
  Share angles_, reversed_;
  Linear* down_;
  const Norm* down_norm_;
  Linear* query_;
  const Norm* head_norm_;
  Linear* key_;
  const Norm* key_norm_;
  const Param* sinks_;
  const HeadMatrix* group_output_;
  Linear* output_;
  const Summaries* summaries_ = nullptr;     // or none
  const SummaryIndexer* indexer_ = nullptr;  // or none
};

SummaryAttention::SummaryAttention(const SummaryAttentionSpec& spec, const MixerPlace& place)
    : Mixer(place.name(spec.name)),
      spec_(spec),
      heads_(spec.heads.share(place.rank).count / spec.head_dim),
      angles_(place.model.angle_columns(spec.angles)),
      reversed_(place.model.angle_columns(spec.reversed_angles)) {
  const int64_t hidden = place.model.hidden_size;
  down_ = &adopt(make_whole(spec.query_down, spec.query_rank, hidden, place));
  down_norm_ = &adopt(make_norm(spec.query_norm, spec.query_rank, place));
  query_ = &add_child<Linear>(place.name(spec.query.name),
                              parts_by_rows(spec.query, std::array{spec.heads}, place),
                              spec.query_rank, spec.query.bias, place.rank);
  head_norm_ = &adopt(make_norm(spec.head_norm, spec.head_dim, place));
  key_ = &adopt(make_whole(spec.key, spec.head_dim, hidden, place));
  key_norm_ = &adopt(make_norm(spec.key_norm, spec.head_dim, place));
  const std::string sinks = place.name(spec.sinks);
  const Dimension one_a_head = resized(spec.heads, 1);
  sinks_ = &add_param(make_vector(sinks, ParamRole::bias,
                                  {{sinks, one_a_head.size, 0, Shard::by_rows(one_a_head)}},
                                  place.rank, 1));
  const Dimension rows = spec.group_rows();
  group_output_ = &add_child<HeadMatrix>(
      place.name(spec.group_output),
      HeadMatrix::Rows{
          .source = spec.group_output, .all = rows, .inputs = spec.heads.size / spec.groups},
      place);
  output_ = &add_child<Linear>(place.name(spec.output.name),
                               part_by_cols(spec.output, rows, hidden, place), rows.size,
                               spec.output.bias, place.rank);
  if (spec.summaries) summaries_ = &add_child<Summaries>(*spec.summaries, place);
  if (spec.indexer) indexer_ = &add_child<SummaryIndexer>(*spec.indexer, spec.query_rank, place);
}

std::vector<KvSpec> SummaryAttention::kv_specs() const {
  std::vector<KvSpec> specs{{.kind = KvKind::latent,
                             .heads = 1,
                             .key_dim = spec_.head_dim,
                             .value_dim = spec_.head_dim,
                             .window = spec_.window}};
  if (summaries_ != nullptr) summaries_->add_caches(specs);
  if (indexer_ != nullptr) indexer_->summaries().add_caches(specs);
  return specs;
}

void SummaryAttention::attend(const Context& context, const MixerStep& step, const Activations& act,
                              Tensor x, Tensor all, Tensor out) const {
  const Kernels& kernels = context.kernels;
  const Columns at = columns();
  const int64_t d = spec_.head_dim;
  const Tensor down = all.columns(0, spec_.query_rank), q = all.columns(at.query, heads_ * d);
  const Tensor key = all.columns(at.key, d), room = all.columns(at.behind, all.cols - at.behind);
  const LayerKv& own = step.caches[kOwn];
  const KvRows& rows = step.rows.kv[own.group];
  kernels.store_kv(key, key, rows.slots, own.cache);
  AttentionParams params{.scale = 1 / std::sqrt(static_cast<float>(d)), .window = spec_.window};
  params.sinks = {float_data(sinks_), static_cast<size_t>(sinks_->value.cols)};
  MoreKeys more;
  if (summaries_ != nullptr) {
    summaries_->store(context, step, kSummaries, x, room);
    const LayerKv& entries = step.caches[kSummaries];
    more = {.cache = entries.cache, .rows = &step.rows.kv[entries.group]};
    params.more = &more;
  }
  if (indexer_ != nullptr) {
    more.chosen = act.chosen();
    indexer_->choose(context, step, kIndex, angles_, down, x, room, more.chosen);
  }
  kernels.paged_attention(q, own.cache, rows, params, out);
}

void SummaryAttention::forward(const Context& context, const MixerStep& step,
                               const Activations& act, const RowsIn& from,
                               const RowsOut& to) const {
  const Kernels& kernels = context.kernels;
  const Tensor x = from.read(kernels), all = act.qkv(x.rows);
  const Columns at = columns();
  const int64_t d = spec_.head_dim;
  const Tensor down = all.columns(0, spec_.query_rank), key = all.columns(at.key, d);
  down_->forward(context, x, all.columns(0, down_->outputs()));
  down_norm_->forward(kernels, down, down);
  query_->forward(context, down, all.columns(at.query, query_->outputs()));
  const Tensor q = all.columns(at.query, heads_ * d);
  head_norm_->forward(kernels, q, q);
  rotate_tails(kernels, step.rows, angles_, q, d);
  key_->forward(context, x, all.columns(at.key, key_->outputs()));
  key_norm_->forward(kernels, key, key);
  rotate_tails(kernels, step.rows, angles_, key, d);

  const Tensor heads = act.attention(x.rows).columns(0, heads_ * d);
  attend(context, step, act, x, all, heads);
  rotate_tails(kernels, step.rows, reversed_, heads, d);
  const int64_t of_group = spec_.heads.size / spec_.groups, groups = heads.cols / of_group;
  const Tensor out =
      act.attention(x.rows).columns(padded_columns(heads.cols), groups * spec_.group_rank);
  group_output_->multiply(kernels, heads, of_group, HeadProduct::transposed, out, spec_.group_rank);
  output_->forward(context, out, to);
}

int64_t summary_columns(const SummarySpec& spec) {
  return 2 * padded_columns(spec.columns()) + padded_columns(spec.dim);
}

}  // namespace

Dimension SummaryAttentionSpec::group_rows() const {
  return {.size = groups * group_rank, .unit = group_rank};
}

MixerWidths SummaryAttentionSpec::widths(Rank rank) const {
  const int64_t own = heads.share(rank).count, out = group_rows().share(rank).count;
  int64_t room = summaries ? summary_columns(*summaries) : 0;
  if (indexer) {
    const int64_t choice =
        padded_columns(indexer->heads * indexer->keys.dim) + padded_columns(indexer->heads);
    room = std::max({room, summary_columns(indexer->keys), choice});
  }
  return {padded_columns(query_rank) + padded_columns(head_dim) + padded_columns(own) + room,
          padded_columns(own) + padded_columns(out), indexer ? indexer->chosen : 0};
}

void SummaryAttentionSpec::divide(Rank rank) {
  heads.multiple_of = heads.size / groups;  // ranks have whole groups
  divide_heads(heads, {.size = 1}, rank);
}

void SummaryAttentionSpec::add_workspace(Rank rank, WorkspaceNeeds& needs) const {
  needs.heads = std::max(needs.heads, heads.share(rank).count / head_dim);
  needs.max_cols = std::max({needs.max_cols, query_rank, group_rows().share(rank).count});
  needs.key_dim = std::max(needs.key_dim, head_dim);
  needs.value_dim = std::max(needs.value_dim, head_dim);
  needs.head_cols = std::max(needs.head_cols, heads.size / groups);
  needs.more_keys |= summaries.has_value();
  if (!indexer) return;
  needs.chosen = std::max(needs.chosen, indexer->chosen);
  needs.key_dim = std::max(needs.key_dim, indexer->keys.dim);
}

std::unique_ptr<Mixer> make_mixer(const SummaryAttentionSpec& spec, const MixerPlace& place) {
  return std::make_unique<SummaryAttention>(spec, place);
}

}  // namespace sluice
