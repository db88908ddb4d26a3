#include "src/models/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/device/range.h"
#include "src/nn/weight_stream.h"

namespace sluice {
namespace {

// Ranks divide a large vocabulary at the blocks that scales may have, and any at whole panels.
Dimension vocabulary_of(const DecoderSpec& spec, Rank rank) {
  const bool is_large = spec.vocab_size >= kPanelRows * kScaleBlock * rank.size;
  return {.size = spec.vocab_size, .multiple_of = is_large ? kScaleBlock : kPanelRows};
}

// Ranks divide a wide MLP at the blocks and groups that weights may have, and then may differ by
// one.
void divide_width(Dimension& width, Rank rank) {
  constexpr int64_t kFewestSteps = 8;  // of a rank, so that they differ by little
  if (width.size < rank.size * width.multiple_of) {
    fail(ErrorKind::usage, "--tensor-parallel-size {}: an MLP of {} has too little for each",
         rank.size, width.size);
  }
  for (const int64_t step : {256, 128, 64, 32, 16}) {
    if (width.multiple_of > 1) return;
    if (width.size % step == 0 && width.size / step >= kFewestSteps * rank.size)
      width.multiple_of = step;
  }
}

// Chooses where ranks divide a decoder. Error(usage) where they cannot.
DecoderSpec divided(DecoderSpec spec, Rank rank) {
  if (rank.size == 1) return spec;
  if (spec.vocab_size < rank.size * kPanelRows) {
    fail(ErrorKind::usage, "--tensor-parallel-size {}: a vocabulary of {} has too little for each",
         rank.size, spec.vocab_size);
  }
  for (LayerSpec& layer : spec.kinds) {
    for (MixerBranch& mixer : layer.mixers)
      std::visit([&](auto& held) { held.divide(rank); }, mixer.mixer);
    for (MlpBranch& branch : layer.mlps) {
      if (!branch.experts || !branch.experts->whole) {
        each<MlpSpec>(branch, [&](MlpSpec& mlp) { divide_width(mlp.width, rank); });
      } else if (branch.experts->shared) {
        divide_width(branch.experts->shared->width, rank);
      }
    }
  }
  return spec;
}

std::unique_ptr<Embedding> make_token_table(const DecoderSpec& spec, const Dimension& vocabulary,
                                            Rank rank) {
  const std::string& source = spec.embedding_from_head ? spec.head : spec.embedding;
  return std::make_unique<Embedding>(spec.embedding, source, vocabulary, spec.output_size(),
                                     spec.tie_word_embeddings, rank, spec.table_rows);
}

// The bias of a head whose matrix is the embedding's table.
class HeadBias : public Module {
 public:
  HeadBias(const DecoderSpec& spec, const Dimension& vocabulary, Rank rank) : Module(spec.head) {
    const std::string name = spec.head + ".bias";
    bias_ = &add_param(make_vector(name, ParamRole::bias,
                                   {{name, vocabulary.size, 0, Shard::by_rows(vocabulary)}}, rank,
                                   kPanelRows));
  }
  const Param* bias() const { return bias_; }

 private:
  const Param* bias_;
};

}  // namespace

InputEmbedding::InputEmbedding(const DecoderSpec& spec, const Dimension& vocabulary, Rank rank)
    : Module(spec.embedding), spec_(spec) {
  tokens_ = &adopt(make_token_table(spec, vocabulary, rank));
  if (spec.embedding_size > 0) {
    const std::string& name = spec.input_projection;
    projection_ = &add_child<Linear>(name, std::vector<LinearPart>{{name, spec.hidden_size}},
                                     spec.embedding_size, false, Rank{});
  }
  if (spec.embedding_norm.exists()) {
    const NormSpec& norm = spec.embedding_norm;
    norm_ = &add_child<Norm>(norm.name, spec.hidden_size, norm.params,
                             NormTensors{norm.weight, norm.bias});
  }
  if (!spec.positions.empty()) {
    positions_ = &add_child<Embedding>(spec.positions, spec.positions,
                                       Dimension{.size = spec.max_positions + spec.first_position},
                                       spec.hidden_size, false);
  }
  if (spec.altup) altup_ = &add_child<AltUpEntry>(*spec.altup, spec.hidden_size);
  if (!spec.layer_inputs) return;
  const LayerInputsSpec& inputs = *spec.layer_inputs;
  const int64_t columns = inputs.width * std::ssize(spec.layers);
  layer_table_ = &add_child<Embedding>(inputs.table, inputs.table,
                                       Dimension{.size = std::max(inputs.rows, spec.vocab_size)},
                                       columns, false, Rank{}, inputs.rows);
  layer_projection_ =
      &add_child<Linear>(inputs.projection, std::vector<LinearPart>{{inputs.projection, columns}},
                         spec.hidden_size, false, Rank{});
  layer_norm_ = &add_child<Norm>(inputs.norm.name, inputs.width, inputs.norm.params,
                                 NormTensors{inputs.norm.weight, inputs.norm.bias});
}

void InputEmbedding::forward(const Context& context, const StepRows& rows,
                             const Activations& act) const {
  const Kernels& kernels = context.kernels;
  const int64_t count = std::ssize(rows.ids);
  Tensor residual = act.residual(count);
  if (projection_ == nullptr) {
    const Tensor first = residual.columns(0, spec_.hidden_size);
    tokens_->forward(context, rows.ids, rows.host_ids, first);
    for (int64_t s = 1; s < spec_.streams.count; ++s)
      kernels.activate({Activation::identity}, first, {},
                       residual.columns(s * first.cols, first.cols));
  } else {
    const Tensor tokens = act.normed(count).columns(0, spec_.embedding_size);
    tokens_->forward(context, rows.ids, rows.host_ids, tokens);
    projection_->forward(context, tokens, act.wide_residual(count, spec_.hidden_size));
  }
  if (spec_.embedding_multiplier != 1) kernels.scale(residual, spec_.embedding_multiplier, nullptr);
  if (spec_.sinusoids) add_sinusoids(kernels, rows, residual);
  if (norm_ != nullptr) norm_->forward(kernels, residual, residual);
  if (layer_table_ != nullptr) compute_layer_inputs(context, rows, act);
  if (altup_ != nullptr) altup_->forward(context, act, count);
  if (positions_ == nullptr) return;
  positions_->forward(context, rows.positions, rows.host_positions,
                      act.normed(count).columns(0, residual.cols));
}

void InputEmbedding::add_sinusoids(const Kernels& kernels, const StepRows& rows, Tensor to) const {
  const Share angles = spec_.angle_columns(*spec_.sinusoids);
  kernels.add(to.columns(0, angles.count), rows.sin.columns(angles.begin, angles.count));
  kernels.add(to.columns(angles.count, angles.count), rows.cos.columns(angles.begin, angles.count));
}

void InputEmbedding::compute_layer_inputs(const Context& context, const StepRows& rows,
                                          const Activations& act) const {
  const Kernels& kernels = context.kernels;
  const LayerInputsSpec& inputs = *spec_.layer_inputs;
  const int64_t count = std::ssize(rows.ids);
  const Tensor of_table = act.layer_rows(count), wide = act.layer_inputs(count);
  const Tensor sum = wide.columns(0, of_table.cols);
  layer_projection_->forward(context, act.residual(count), wide);
  kernels.scale(sum, inputs.projection_multiplier, nullptr);
  layer_norm_->forward(kernels, sum, sum);
  layer_table_->forward(context, rows.ids, rows.host_ids, of_table);
  kernels.scale(of_table, inputs.table_multiplier, nullptr);
  kernels.add(sum, of_table);
  kernels.scale(sum, inputs.multiplier, nullptr);
}

StreamReader::StreamReader(const StreamMixSpec& spec, const StreamsSpec& streams, int64_t layer,
                           int64_t hidden_size, bool writes)
    : Module(name_in_layer(spec.name, layer)), streams_(streams) {
  const int64_t count = streams.count * (writes ? 2 + streams.count : 1);
  const auto vector = [&](const std::string& source, int64_t size) {
    const std::string name = name_in_layer(source, layer);
    return &add_param(make_vector(name, ParamRole::bias, {{name, size}}, {}, 1));
  };
  const LinearPart part{
      .source = name_in_layer(spec.logits, layer), .outputs = count, .bare = true};
  logits_ = &add_child<Linear>(part.source, std::vector{part}, streams.count * hidden_size, false,
                               Rank{}, ParamRole::router);
  scales_ = vector(spec.scales, writes ? 3 : 1);
  biases_ = vector(spec.biases, count);
}

void StreamReader::read(const Context& context, const Activations& act, Tensor out) const {
  const Tensor streams = act.residual(out.rows),
               logits = act.stream_weights(out.rows).columns(0, logits_->outputs());
  logits_->forward(context, streams, logits);
  const StreamMix mix{.streams = streams_.count,
                      .scales = float_data(scales_),
                      .biases = float_data(biases_),
                      .eps = streams_.eps,
                      .norm_eps = streams_.norm_eps,
                      .iterations = streams_.iterations};
  context.kernels.read_streams(streams, mix, logits_->part(logits, 0), out);
}

void StreamReader::write(const Context& context, const Activations& act, Tensor x) const {
  const int64_t first = streams_.count, count = first * (1 + first);
  context.kernels.write_streams(x, act.stream_weights(x.rows).columns(first, count),
                                act.residual(x.rows));
}

DecoderLayer::DecoderLayer(const DecoderSpec& model, size_t layer, size_t first_mixer, Rank rank)
    : Module(name_in_layer(model.layer(layer).name, static_cast<int64_t>(layer))),
      hidden_size_(model.hidden_size) {
  const LayerSpec& spec = model.layer(layer);
  const auto number = static_cast<int64_t>(layer);
  const auto add_mlps = [&](std::optional<size_t> behind) {
    for (const MlpBranch& mlp : spec.mlps)
      if (mlp.behind == behind) add_mlp(mlp, model, number, rank);
  };
  for (size_t m = 0; m < spec.mixers.size(); ++m) {
    const MixerBranch& mixer = spec.mixers[m];
    Branch& branch = add_branch(mixer, model, number);
    branch.mixer = &adopt(make_mixer(mixer.mixer, {model, number, rank}));
    branch.output_norm = add_norm(mixer.output_norm, number);
    branch.stream_norm = add_norm(mixer.stream_norm, number);
    branch.input_multiplier = mixer.input_multiplier;
    branch.caches = first_mixer + m;
    add_mlps(m);
  }
  add_mlps(std::nullopt);
  if (model.altup) {
    altup_ = &add_child<AltUpLayer>(*model.altup, number, hidden_size_);
    check(branches_.back().input == BranchInput::computed, "a branch for the other streams");
  }
  check_branches();
  if (spec.scalar.empty()) return;
  const std::string name = name_in_layer(spec.scalar, number);
  scalar_ = &add_param(make_vector(name, ParamRole::bias, {{name, 1}}, {}, 1));
}

// Begins a branch: what it reads.
template <class Spec>
DecoderLayer::Branch& DecoderLayer::add_branch(const Spec& spec, const DecoderSpec& model,
                                               int64_t layer) {
  check_beside(spec.input);
  Branch& branch = branches_.emplace_back();
  branch.input = spec.input;
  branch.mix = add_mix(spec.mix, model, layer);
  branch.norm = add_norm(spec.norm, layer);
  branch.norms_stream = spec.norms_stream;
  branch.stream_multiplier = spec.stream_multiplier;
  branch.multiplier = spec.multiplier;
  if (!spec.input_gate.exists()) return branch;
  check(branch.norm != nullptr, "a gate is of what a norm gives");
  branch.input_gate = &add_child<InputGate>(spec.input_gate, layer, hidden_size_);
  return branch;
}

void DecoderLayer::add_mlp(const MlpBranch& spec, const DecoderSpec& model, int64_t layer,
                           Rank rank) {
  Branch& branch = add_branch(spec, model, layer);
  if (spec.experts) {
    branch.experts = &add_child<Experts>(*spec.experts, layer, model, rank);
  } else {
    branch.mlp = &add_child<Mlp>(spec.mlp, ModulePlace{layer}, hidden_size_, rank);
  }
  branch.output_norm = add_norm(spec.output_norm, layer);
  branch.stream_norm = add_norm(spec.stream_norm, layer);
  branch.sum_norm = add_norm(spec.sum_norm, layer);
  branch.sum_multiplier = spec.sum_multiplier;
  branch.adds_input = spec.adds_input;
  branch.late = spec.late;
}

void DecoderLayer::check_beside(BranchInput input) const {
  if (input != BranchInput::layer_input) return;
  check(!branches_.empty() && branches_.back().input == BranchInput::stream &&
            branches_.back().norm != nullptr,
        "what stands beside a branch is the only one, and that one has a norm");
  check(std::ranges::none_of(branches_.begin(), branches_.end() - 1, &Branch::late),
        "the room beside a branch has what is added late");
}

// Refuses branches that forward() does not compute together.
void DecoderLayer::check_branches() const {
  for (size_t i = 0; i < branches_.size(); ++i) {
    const Branch& b = branches_[i];
    const bool beside =
        b.input == BranchInput::layer_input ||
        (i + 1 < branches_.size() && branches_[i + 1].input == BranchInput::layer_input);
    const bool replaces = b.norms_stream || b.stream_multiplier != 1 || b.stream_norm != nullptr;
    check(!replaces || (!beside && b.mix == nullptr), "a branch that replaces the stream is alone");
    check(b.mix == nullptr || (!beside && !b.late), "a branch that mixes streams is alone");
    check(b.sum_multiplier == 1 || altup_ != nullptr, "a sum is multiplied before AltUp corrects");
  }
}

const Norm* DecoderLayer::add_norm(const NormSpec& spec, int64_t layer) {
  if (!spec.exists()) return nullptr;
  return &add_child<Norm>(name_in_layer(spec.name, layer), hidden_size_, spec.params,
                          NormTensors{spec.weight, spec.bias});
}

const StreamReader* DecoderLayer::add_mix(const StreamMixSpec& spec, const DecoderSpec& model,
                                          int64_t layer) {
  if (!spec.exists()) return nullptr;
  return &add_child<StreamReader>(spec, model.streams, layer, hidden_size_, true);
}

bool DecoderLayer::adds(size_t branch, const Context& context, int64_t rows) const {
  const Branch& b = branches_[branch];
  const bool beside =
      b.input != BranchInput::stream ||
      (branch + 1 < branches_.size() && branches_[branch + 1].input == BranchInput::layer_input);
  if (beside || b.output_norm != nullptr || b.stream_norm != nullptr || b.multiplier != 1 ||
      b.norms_stream || b.experts != nullptr || b.mix != nullptr)
    return false;
  const Linear* last = b.mlp != nullptr ? &b.mlp->down() : b.mixer->output();
  return last != nullptr && last->adds(context, rows);
}

// to.y is whole panels wide, and may begin where the input or its norm does.
void DecoderLayer::compute(const Branch& branch, const Context& context, const Batch& batch,
                           const Activations& act, const RowsIn& from, const RowsOut& to) const {
  RowsIn input = from;
  if (branch.input_multiplier != 1) {
    input = from.read(context.kernels);
    context.kernels.scale(input.rows, branch.input_multiplier, nullptr);
  }
  if (branch.input_gate != nullptr) {
    input = input.read(context.kernels);
    branch.input_gate->forward(context, act, input.rows);
  }
  if (branch.mlp != nullptr) {
    branch.mlp->forward(context, act, input, to);
  } else if (branch.experts != nullptr) {
    branch.experts->forward(context, batch.rows, act, input.read(context.kernels), to.y);
  } else {
    branch.mixer->forward(context, {batch.rows, batch.mixers[branch.caches]}, act, input, to);
  }
  const Tensor out = to.y.columns(0, hidden_size_);
  if (branch.output_norm != nullptr) branch.output_norm->forward(context.kernels, out, out);
  if (branch.multiplier != 1) context.kernels.scale(out, branch.multiplier, nullptr);
}

// Computes a branch, whose input is in act.beside(), and the one that stands beside it. Returns
// whether act.normed() holds what is still to be added.
bool DecoderLayer::compute_both(const Branch& branch, const Branch& other, const Context& context,
                                const Batch& batch, const Activations& act) const {
  const Kernels& kernels = context.kernels;
  const int64_t rows = std::ssize(batch.rows.ids);
  const Tensor residual = act.residual(rows), wide = act.normed(rows);
  const Tensor beside = act.beside(rows).columns(0, hidden_size_);
  const Tensor normed = wide.columns(0, hidden_size_);
  compute(branch, context, batch, act, beside, act.beside(rows));
  if (other.adds_input) kernels.add(residual, normed);
  compute(other, context, batch, act, normed, wide);
  if (other.sum_norm != nullptr) {
    kernels.add(normed, beside);
    other.sum_norm->forward(kernels, normed, normed);
    return true;
  }
  if (!branch.late) kernels.add(residual, beside);
  if (other.sum_multiplier == 1) return true;
  kernels.add(residual, normed);
  kernels.scale(residual, other.sum_multiplier, nullptr);
  return false;
}

// Corrects all streams by the one that is computed, and adds the last branch to the others.
void DecoderLayer::end_altup(const Context& context, const Batch& batch,
                             const Activations& act) const {
  const int64_t rows = std::ssize(batch.rows.ids);
  altup_->correct(context, act, rows);
  compute(branches_.back(), context, batch, act, act.residual(rows), act.normed(rows));
  altup_->add(context, act, rows);
}

void DecoderLayer::forward(const Context& context, const Batch& batch, const Activations& act,
                           bool delta) const {
  Range range(path());
  const Kernels& kernels = context.kernels;
  const int64_t rows = std::ssize(batch.rows.ids);
  Tensor residual = act.residual(rows), wide = act.normed(rows);
  Tensor normed = wide.columns(0, hidden_size_);
  // Returns what a branch reads: the residual stream through `norm`, with room for it in `to`, or
  // as it is.
  auto input = [&](const Norm* norm, Tensor to) -> RowsIn {
    const bool added = std::exchange(delta, false);
    if (added && norm == nullptr) kernels.add(residual, normed);
    if (!added || norm == nullptr) return {residual, norm, to};
    norm->forward_add(kernels, residual, normed, to);
    return to;
  };
  if (branches_.empty() && delta) kernels.add(residual, normed);
  if (altup_ != nullptr) altup_->predict(context, act, rows);
  const size_t of_stream = branches_.size() - (altup_ != nullptr ? 1 : 0);
  for (size_t i = 0; i < of_stream; ++i) {
    const Branch& branch = branches_[i];
    const Branch* other = i + 1 < of_stream ? &branches_[i + 1] : nullptr;
    if (branch.mix != nullptr) {
      branch.mix->read(context, act, normed);
      compute(branch, context, batch, act, {normed, branch.norm, normed}, wide);
      branch.mix->write(context, act, normed);
      continue;
    }
    if (other == nullptr || other->input == BranchInput::stream) {
      const RowsIn from = input(branch.norms_stream ? nullptr : branch.norm, normed);
      if (branch.norms_stream) branch.norm->forward(kernels, residual, residual);
      if (adds(i, context, rows)) {
        compute(branch, context, batch, act, from, {act.wide_residual(rows, wide.cols), true});
        continue;
      }
      compute(branch, context, batch, act, from, wide);
      if (branch.stream_multiplier != 1) kernels.scale(residual, branch.stream_multiplier, nullptr);
      if (branch.stream_norm != nullptr) {
        kernels.add(residual, normed);
        branch.stream_norm->forward(kernels, residual, residual);
        continue;
      }
    } else {  // both read the stream as it is before either is added
      Tensor beside = act.beside(rows).columns(0, hidden_size_);
      input(branch.norm, beside).read(kernels);
      input(other->norm != nullptr ? other->norm : branch.norm, normed).read(kernels);
      delta = compute_both(branch, *other, context, batch, act);
      ++i;
      continue;
    }
    delta = true;
  }
  if (std::ranges::any_of(branches_, &Branch::late))
    kernels.add(residual, act.beside(rows).columns(0, hidden_size_));
  if (scalar_ == nullptr && altup_ == nullptr) return;
  if (delta) kernels.add(residual, normed);
  if (altup_ != nullptr) return end_altup(context, batch, act);
  kernels.scale(residual, 1, reinterpret_cast<const float*>(scalar_->value.data));
}

bool DecoderLayer::waits(const Kernels& kernels) const {
  return std::ranges::any_of(branches_, [&](const Branch& b) {
    return b.experts != nullptr && b.experts->waits(kernels);
  });
}

std::vector<KvScaleNames> DecoderLayer::kv_scale_names() const {
  std::vector<KvScaleNames> names;
  for (const Branch& branch : branches_)
    if (branch.mixer != nullptr) names.push_back(branch.mixer->kv_scale_names());
  return names;
}

std::vector<std::vector<KvSpec>> DecoderLayer::kv_specs() const {
  std::vector<std::vector<KvSpec>> specs;
  for (const Branch& branch : branches_)
    if (branch.mixer != nullptr) specs.push_back(branch.mixer->kv_specs());
  return specs;
}

CausalLM::CausalLM(DecoderSpec spec, Rank rank, Stage stage)
    : Module("model"),
      spec_(divided(std::move(spec), rank)),
      rank_(rank),
      vocabulary_(vocabulary_of(spec_, rank)),
      stage_(std::move(stage)) {
  if (stage_.is_first()) {
    InputEmbedding& embedding = add_child<InputEmbedding>(spec_, vocabulary_, rank);
    embedding_ = &embedding;
    units_.push_back(&embedding);
  }
  add_layers();
  forward_units_ = units_.size();
  if (stage_.is_last()) add_end();
}

Share CausalLM::layers_of(int stage) const {
  if (stage_.all.empty()) return {0, std::ssize(spec_.layers)};
  return stage_.all[static_cast<size_t>(stage)].layers;
}

// Adds the layers of this stage. Those of the others are only asked for what they keep of a token.
void CausalLM::add_layers() {
  size_t mixers = 0;
  for (int s = 0; s < stage_.count(); ++s) {
    const Share range = layers_of(s);
    MixerSpecs& specs = stages_.emplace_back();
    for (int64_t layer = range.begin; layer < range.begin + range.count; ++layer) {
      const auto i = static_cast<size_t>(layer);
      if (s == stage_.number) {
        layers_.push_back(&add_child<DecoderLayer>(spec_, i, specs.size(), rank_));
        units_.push_back(layers_.back());
        std::ranges::move(layers_.back()->kv_specs(), std::back_inserter(specs));
        continue;
      }
      for (const MixerBranch& mixer : spec_.layer(i).mixers)
        specs.push_back(make_mixer(mixer.mixer, {spec_, layer, rank_})->kv_specs());
    }
    for (std::vector<KvSpec>& mixer : specs)
      for (KvSpec& spec : mixer)
        if (spec.shared_with) *spec.shared_with -= mixers;
    mixers += specs.size();
  }
}

void CausalLM::add_end() {
  if (spec_.altup) {
    AltUpExit& exit = add_child<AltUpExit>(*spec_.altup, spec_.hidden_size);
    exit_ = &exit;
    units_.push_back(&exit);
  }
  const NormSpec& norm = spec_.norm;
  if (spec_.streams.last.exists()) {
    StreamReader& mix =
        add_child<StreamReader>(spec_.streams.last, spec_.streams, 0, spec_.hidden_size, false);
    last_mix_ = &mix;
    units_.push_back(&mix);
  }
  Norm& last = add_child<Norm>(norm.name, spec_.hidden_size, norm.params,
                               NormTensors{norm.weight, norm.bias});
  norm_ = &last;
  units_.push_back(&last);
  if (spec_.embedding_size > 0) {
    const std::string& name = spec_.output_projection;
    Linear& projection =
        add_child<Linear>(name, std::vector<LinearPart>{{name, spec_.embedding_size}},
                          spec_.hidden_size, false, Rank{});
    output_projection_ = &projection;
    units_.push_back(&projection);
  }
  forward_units_ = units_.size();
  if (!spec_.has_head) return;
  if (!spec_.tie_word_embeddings) {
    Linear& head = add_child<Linear>(
        spec_.head,
        std::vector<LinearPart>{{spec_.head, spec_.vocab_size, Shard::by_rows(vocabulary_)}},
        spec_.output_size(), spec_.head_bias, rank_, ParamRole::head);
    head_ = &head.weight();
    head_bias_ = head.bias();
    units_.push_back(&head);
    return;
  }
  if (embedding_ != nullptr) {
    head_ = &embedding_->table();
  } else {
    Embedding& table = adopt(make_token_table(spec_, vocabulary_, rank_));
    head_ = &table.table();
    units_.push_back(&table);
  }
  if (!spec_.head_bias) return;
  HeadBias& head = add_child<HeadBias>(spec_, vocabulary_, rank_);
  head_bias_ = head.bias();
  units_.push_back(&head);
}

// Returns the slopes of the code of arXiv:2108.12409, also for heads that are not a power of two.
std::vector<float> CausalLM::alibi_slopes() const {
  for (const LayerSpec& layer : spec_.kinds) {
    for (const MixerBranch& mixer : layer.mixers) {
      const auto* attention = std::get_if<AttentionSpec>(&mixer.mixer);
      if (attention == nullptr || attention->alibi == 0) continue;
      const AttentionSpec& a = *attention;
      const auto power = std::bit_floor(static_cast<uint64_t>(a.heads.units()));
      std::vector<float> slopes;
      for (uint64_t h = 0; h < static_cast<uint64_t>(a.heads.units()); ++h) {
        const auto step = 8.0 / static_cast<double>(power);
        const double exponent = h < power ? step * static_cast<double>(h + 1)
                                          : step * (static_cast<double>(h - power) + 0.5);
        slopes.push_back(static_cast<float>(std::exp2(-exponent)) * a.alibi);
      }
      const Share share = a.heads.share(rank_);
      const auto* first = slopes.data() + share.begin / a.head_dim;
      return {first, first + share.count / a.head_dim};
    }
  }
  return {};
}

std::vector<KvScaleNames> CausalLM::kv_scale_names() const {
  std::vector<KvScaleNames> names;
  for (const DecoderLayer* layer : layers_)
    std::ranges::move(layer->kv_scale_names(), std::back_inserter(names));
  return names;
}

void CausalLM::use_kv_scales(std::vector<KvScales> scales) {
  check(scales.empty() || scales.size() == kv_specs().size(), "KV scales of every mixer, or none");
  kv_scales_ = std::move(scales);
}

void CausalLM::forward(const Context& context, const Batch& batch, const Activations& act,
                       size_t unit) const {
  const int64_t rows = std::ssize(batch.rows.ids);
  const size_t first = embedding_ != nullptr ? 1 : 0;
  if (unit < first) return embedding_->forward(context, batch.rows, act);
  const size_t i = unit - first;
  if (i >= layers_.size()) return forward_end(context, act, rows, *units_[unit]);
  layers_[i]->forward(context, batch, act, delta_before(context, rows, i));
  const bool ends_stage = norm_ == nullptr && i + 1 == layers_.size();
  if (ends_stage && layers_[i]->leaves_delta(context, rows))
    context.kernels.add(act.residual(rows), act.normed(rows).columns(0, spec_.hidden_size));
}

bool CausalLM::delta_before(const Context& context, int64_t rows, size_t layer) const {
  return layer > 0 ? layers_[layer - 1]->leaves_delta(context, rows)
                   : embedding_ != nullptr && embedding_->leaves_delta();
}

void CausalLM::forward_end(const Context& context, const Activations& act, int64_t rows,
                           const Module& unit) const {
  const Tensor normed = act.normed(rows).columns(0, spec_.hidden_size);
  if (&unit == exit_) return exit_->forward(context, act, rows);
  if (&unit == last_mix_) return last_mix_->read(context, act, normed);
  if (&unit == output_projection_)
    return output_projection_->forward(context, normed,
                                       act.wide_residual(rows, spec_.embedding_size));
  if (last_mix_ != nullptr) return norm_->forward(context.kernels, normed, normed);
  const Tensor residual = act.residual(rows);
  if (delta_before(context, rows, layers_.size()))
    return norm_->forward_add(context.kernels, residual, normed, normed);
  norm_->forward(context.kernels, residual, normed);
}

Tensor CausalLM::hidden(const Activations& act, int64_t rows) const {
  const int64_t size = spec_.output_size();
  const Tensor last = spec_.embedding_size == 0 ? act.normed(rows) : act.wide_residual(rows, size);
  return last.columns(0, size);
}

bool CausalLM::waits(const Kernels& kernels, size_t unit) const {
  const size_t first = embedding_ != nullptr ? 1 : 0;
  return unit >= first && unit - first < layers_.size() && layers_[unit - first]->waits(kernels);
}

void CausalLM::logits(const Context& context, Tensor hidden, Tensor logits) const {
  const Kernels& kernels = context.kernels;
  check(head_ != nullptr, "logits of a model with a head");
  const float* bias = head_bias_ ? reinterpret_cast<const float*>(head_bias_->value.data) : nullptr;
  multiply(context, hidden, *head_, bias, logits);
  if (spec_.logit_multiplier != 1) kernels.scale(logits, spec_.logit_multiplier, nullptr);
  if (spec_.logit_soft_cap > 0) kernels.soft_cap(logits, spec_.logit_soft_cap);
}

int64_t CausalLM::head_cols() const { return head_ != nullptr ? head_->rows : kPanelRows; }

int64_t CausalLM::logits_cols() const {
  const bool has_logits = has_head() && (stage_.is_first() || stage_.is_last());
  if (!has_logits) return kPanelRows;
  return ceil_div(spec_.vocab_size, kPanelRows) * kPanelRows;
}

WorkspaceNeeds CausalLM::workspace_needs(int64_t max_rows) const {
  WorkspaceNeeds needs{max_rows, spec_.stream_columns()};
  needs.grouped = grouped_weights_;
  for (const LayerSpec& layer : spec_.kinds) {
    for (const MixerBranch& branch : layer.mixers) {
      std::visit([&](const auto& held) { held.add_workspace(rank_, needs); }, branch.mixer);
      needs.max_cols = std::max(needs.max_cols, branch.input_gate.rank);
    }
    for (const MlpBranch& branch : layer.mlps) {
      needs.max_cols = std::max(needs.max_cols, branch.input_gate.rank);
      each<MlpSpec>(branch, [&](const MlpSpec& mlp) {
        needs.max_cols = std::max(needs.max_cols, mlp.width.size);
      });
      if (!branch.experts) continue;
      needs.experts = std::max(needs.experts, branch.experts->choices());
      needs.top_k = std::max(needs.top_k, branch.experts->choice.top_k);
      needs.expert_cols = std::max(needs.expert_cols, branch.experts->expert.width.size);
      needs.expert_hidden = spec_.hidden_size;
    }
  }
  needs.rope_cols = spec_.angle_columns();
  return needs;
}

}  // namespace sluice
