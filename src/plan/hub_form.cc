#include "src/plan/hub_form.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>

#include "src/base/error.h"
#include "src/models/expert_layout.h"
#include "src/models/hub_shapes.h"
#include "src/plan/bind.h"

namespace sluice {

int64_t SourceOrder::source_of(int64_t row) const {
  if (kind == Kind::same) return row;
  const int64_t head = row / block, at = row % block, begin = head * block;
  switch (kind) {
    case Kind::pairs:
      if (at >= of) return row;
      return at < of / 2 ? begin + 2 * at : begin + 2 * (at - of / 2) + 1;
    case Kind::tiles:
      return (head % heads_each * of + head / heads_each) * block + at;
    default:
      return head * of;
  }
}

int64_t SourceOrder::run_from(int64_t row) const {
  if (kind == Kind::same) return INT64_MAX;
  const int64_t at = row % block;
  if (kind != Kind::pairs) return block - at;
  return (at < of / 2 ? of / 2 : at < of ? of : block) - at;
}

int64_t SourceOrder::step_at(int64_t row) const {
  return kind == Kind::pairs && row % block < of ? 2 : 1;
}

namespace {

using Kind = SourceOrder::Kind;

void add_runs(const HubPart& part, std::vector<RowRun>& runs) {
  const auto& [param, piece, order, begin, sources] = part;
  const bool turned = order.kind == Kind::turned;
  for (int64_t row = 0; row < piece->outputs();) {
    int64_t from = order.source_of(row) + begin;
    auto source = sources->begin();
    while (from >= source->rows && std::next(source) != sources->end()) from -= (source++)->rows;
    const int64_t step = order.step_at(row);
    int64_t rows = std::min(
        {piece->outputs() - row, order.run_from(row), piece->view.group - row % piece->view.group});
    if (!turned) rows = std::min(rows, (source->rows - from + step - 1) / step);
    if (rows < 1) return;  // the source has fewer, which finish() tells
    runs.push_back({.output = piece->stored_output(row),
                    .rows = rows,
                    .tensor = source->tensor,
                    .first = from,
                    .step = step,
                    .turned = turned ? order.of : 0,
                    .column = turned ? row % order.block : 0});
    row += rows;
  }
}

}  // namespace

std::vector<RowRun> HubTensor::runs(int64_t matrix) const {
  std::vector<RowRun> all;
  for (const HubPart& part : parts)
    if (part.piece->view.index.value_or(0) == matrix) add_runs(part, all);
  std::ranges::stable_sort(all, {}, &RowRun::output);
  std::vector<RowRun> once;
  int64_t end = 0;
  for (const RowRun& run : all) {
    if (run.output < end) continue;
    once.push_back(run);
    end = run.output + run.rows;
  }
  return once;
}

namespace {

// The differences of a source's parameters from the hub's, by the paths of these.
struct Differences {
  std::map<std::pair<std::string, size_t>, SourceOrder> orders;  // of their parts
  std::map<std::string, SourceOrder> columns;
  std::map<std::string, float> added;
  std::set<std::string> logs;
};

class FindDifferences {
 public:
  FindDifferences(DecoderSpec& hub, DecoderSpec& source) : hub_(hub), source_(source) {}

  Differences find() {
    for (size_t l = 0; l < hub_.layers.size(); ++l) in_layer(l);
    norms();
    return std::move(found_);
  }

 private:
  void in_layer(size_t l) {
    std::vector<const MixerSpec*> all, own;
    each<MixerSpec>(hub_.kinds[hub_.layers[l]], [&](MixerSpec& spec) { all.push_back(&spec); });
    each<MixerSpec>(source_.kinds[source_.layers[l]],
                    [&](MixerSpec& spec) { own.push_back(&spec); });
    check(all.size() == own.size(), "a model and its source have the same mixers");
    for (size_t i = 0; i < all.size(); ++i) {
      std::visit(
          [&](const auto& hub) {
            const auto& of_source = std::get<std::decay_t<decltype(hub)>>(*own[i]);
            if constexpr (requires { hub.negative_rates; })
              rates(hub, of_source, static_cast<int64_t>(l));
            compare(hub, of_source, static_cast<int64_t>(l));
          },
          *all[i]);
    }
  }
  void compare(const auto&, const auto&, int64_t) {}
  // Both parameters of a linear layer, or of a norm.
  void order(const std::string& name, int64_t layer, size_t part, const SourceOrder& order) {
    for (const char* end : {".weight", ".bias"})
      found_.orders[{name_in_layer(name, layer) + end, part}] = order;
  }

  void compare(const AttentionSpec& hub, const AttentionSpec& own, int64_t layer) {
    if (!hub.rope || own.rope == hub.rope) return;
    const SourceOrder pairs{Kind::pairs, hub.head_dim, hub_.ropes[hub.angles].dim};
    for (size_t part = 0; part < (hub.shared_with ? 1 : 2); ++part)
      order(hub.qkv.name, layer, part, pairs);
    for (const NormSpec* norm : {&hub.q_norm, &hub.k_norm})
      if (norm->exists()) order(norm->name, layer, 0, pairs);
  }

  // A head's keys are [rank, elements] where they have a tensor of their own.
  void compare(const MlaSpec& hub, const MlaSpec& own, int64_t layer) {
    if (own.transposed_keys == hub.transposed_keys) return;
    found_.orders[{name_in_layer(hub.keys.source, layer) + ".keys.weight", 0}] = {
        Kind::turned, hub.nope_dim, hub.rank};
  }

  void compare(const GatedDeltaNetSpec& hub, const GatedDeltaNetSpec& own, int64_t layer) {
    if (own.tiled == hub.tiled) return;
    const int64_t keys = hub.key_heads.units(), heads = hub.heads.units(), value = hub.value_dim;
    const auto tiles = [&](int64_t block) {
      return SourceOrder{Kind::tiles, block, keys, heads / keys};
    };
    constexpr size_t kValues = 2, kGate = 3, kDecays = 4, kSteps = 5;
    order(hub.input.name, layer, kValues, tiles(value));
    order(hub.input.name, layer, kGate, tiles(value));
    order(hub.input.name, layer, kDecays, tiles(hub.decays().unit));
    order(hub.input.name, layer, kSteps, tiles(1));
    const std::string convolution = name_in_layer(hub.convolution.name, layer);
    found_.orders[{convolution + ".weight", kValues}] = tiles(value * hub.convolution.width);
    found_.orders[{convolution + ".bias", kValues}] = tiles(value);
    found_.orders[{name_in_layer(hub.log_rates, layer), 0}] = tiles(1);
    found_.orders[{name_in_layer(hub.step_bias, layer), 0}] = tiles(hub.decays().unit);
    found_.columns[name_in_layer(hub.output.name, layer) + ".weight"] = tiles(value);
  }

  void rates(const auto& hub, const auto& own, int64_t layer) {
    if (own.negative_rates != hub.negative_rates)
      found_.logs.insert(name_in_layer(hub.log_rates, layer));
  }

  void norms() {
    std::vector<const NormSpec*> all, own;
    each_norm(hub_, [&](NormSpec& norm) { all.push_back(&norm); });
    each_norm(source_, [&](NormSpec& norm) { own.push_back(&norm); });
    check(all.size() == own.size(), "a model and its source have the same norms");
    for (size_t i = 0; i < all.size(); ++i) {
      const float added = own[i]->params.weight_offset - all[i]->params.weight_offset;
      if (added == 0) continue;
      for (size_t l = 0; l < hub_.layers.size(); ++l)
        found_.added[name_in_layer(all[i]->name, static_cast<int64_t>(l)) + ".weight"] = added;
    }
  }

  DecoderSpec& hub_;
  DecoderSpec& source_;
  Differences found_;
};

std::vector<Param*> params_of(const Model& model) {
  std::vector<Param*> params;
  for (Module* unit : model.root->units())
    unit->each_param([&](Param& param) { params.push_back(&param); });
  return params;
}

// The tensors of `index`. Stacks that are not the hub's own have other names: where a source stacks
// what the hub has as tensors of single experts, or in other stacks, the family's own layout is
// wanted.
io::CheckpointIndex without_stacks(const io::CheckpointIndex& index, const Model& model) {
  std::set<std::string> stacks;
  for (const Param* param : params_of(model))
    for (const Piece& piece : param->pieces)
      if (piece.view.index) stacks.insert(piece.source);
  DecoderSpec spec = model.spec;
  for (int64_t l = 0; l < std::ssize(spec.layers); ++l) {
    each<ExpertsSpec>(spec.kinds[spec.layers[static_cast<size_t>(l)]], [&](ExpertsSpec& experts) {
      for (const std::string& own : {experts.stacked_gate_up, experts.stacked_down})
        stacks.erase(name_in_layer(own, l));
    });
  }
  std::vector<io::StoredTensor> tensors = index.tensors();
  for (io::StoredTensor& tensor : tensors)
    if (stacks.contains(tensor.name)) tensor.name += " (a stack)";
  return {index.files(), std::move(tensors), {}};
}

// Single experts have tensors of their own on the hub beside stacks that are called experts; others
// are layers of theirs, and the only form.
void stack_as_layers(ExpertsSpec& experts) {
  const std::string& stacks = experts.stacked_gate_up;
  if (stacks.empty() || stacks.ends_with(".experts.gate_up_proj")) return;
  stack_experts(experts, std::string(stacks), std::string(experts.stacked_down), false);
}

// Convolutions of channels are [channels, 1, width] there, whichever of the two a source has last.
Shape of_hub(const Shape& shape) {
  return shape.size() == 3 && shape[2] == 1 ? Shape{shape[0], 1, shape[1]} : shape;
}

class MakeForm {
 public:
  MakeForm(HubForm& form, const Model& source, const ReadPlan& plan,
           const io::CheckpointIndex& index)
      : form_(form), source_(source), plan_(plan), index_(index) {
    for (uint32_t t = 0; t < plan.tensors.size(); ++t)
      if (plan.tensors[t].source == 0)
        plan_tensors_[&plan.params[plan.tensors[t].param].param->pieces[plan.tensors[t].piece]] = t;
  }

  void make(const Differences& differences) {
    const std::vector<Param*> hub = params_of(form_.model), own = params_of(source_);
    const bool alike = std::ranges::equal(hub, own, [](const Param* a, const Param* b) {
      return a->role == b->role && a->expert == b->expert;
    });
    if (!alike) refuse("its tensors do not correspond to those of the hub");
    for (const WantedTensor& wanted : wanted_tensors(form_.model)) {
      places_[wanted.name] = form_.tensors.size();
      form_.tensors.push_back({.name = wanted.name, .shape = wanted.shape});
    }
    for (size_t i = 0; i < hub.size(); ++i) add(*hub[i], *own[i], differences);
    for (HubTensor& tensor : form_.tensors) finish(tensor);
  }

  void set_shapes(const std::vector<HubShape>& shapes) {
    for (const auto& [name, shape] : shapes) {
      for (int64_t l = 0; l < std::ssize(form_.model.spec.layers); ++l) {
        const auto place = places_.find(name_in_layer(name, l));
        if (place == places_.end()) continue;
        HubTensor& tensor = form_.tensors[place->second];
        check(tensor.shape.elements() == shape.elements(), "a tensor's shapes have its elements");
        tensor.shape = shape;
      }
    }
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    fail(ErrorKind::refused, "{}: {}, so that it cannot be written in the hub's form",
         source_.files.config_name, why);
  }

  std::vector<SourceRows> rows_of(const Param& own) const {
    std::vector<SourceRows> rows;
    for (size_t i = 0; i < own.pieces.size(); ++i) {
      auto found = plan_tensors_.find(&own.pieces[i]);
      if (found == plan_tensors_.end() && i < own.parts.size())
        found = plan_tensors_.find(&own.parts[i]->pieces.front());
      check(found != plan_tensors_.end(), "a plan has all pieces");
      rows.push_back({found->second, own.pieces[i].outputs()});
    }
    return rows;
  }

  void add(const Param& hub, const Param& own, const Differences& differences) {
    const auto rows = std::make_shared<const std::vector<SourceRows>>(rows_of(own));
    int64_t begin = 0;
    for (size_t i = 0; i < hub.pieces.size(); ++i) {
      const Piece& piece = hub.pieces[i];
      HubTensor& tensor = form_.tensors[places_.at(piece.source)];
      const auto order = differences.orders.find({hub.path, i});
      const auto columns = differences.columns.find(hub.path);
      const auto added = differences.added.find(hub.path);
      if (tensor.parts.empty()) {
        tensor.is_vector = piece.vector;
        tensor.is_transposed = piece.view.transposed;
        tensor.inputs = piece.vector ? 1 : piece.cols;
        tensor.is_log = differences.logs.contains(hub.path);
        if (columns != differences.columns.end()) tensor.columns = columns->second;
        if (added != differences.added.end()) tensor.added = added->second;
      }
      tensor.matrices = std::max(tensor.matrices, piece.view.index.value_or(0) + 1);
      tensor.parts.push_back({&hub, &piece,
                              order == differences.orders.end() ? SourceOrder{} : order->second,
                              begin, rows});
      begin += piece.outputs();
    }
  }

  void finish(HubTensor& tensor) const {
    std::optional<DType> common;
    for (int64_t matrix = 0; matrix < tensor.matrices; ++matrix) {
      int64_t next = 0;
      for (const RowRun& run : tensor.runs(matrix)) {
        if (run.output != next) break;
        next += run.rows;
        take_type(tensor, plan_.tensors[run.tensor], common);
      }
      if (matrix == 0) tensor.outputs = next;
      if (tensor.outputs != next) refuse(tensor.name + " has rows that are no part of the model");
    }
    if (tensor.matrices * tensor.outputs * tensor.inputs != tensor.shape.elements())
      refuse(tensor.name + " has rows that are no part of the model");
    tensor.dtype = common.value_or(DType::f32);
    // Vectors have more dimensions there.
    const io::StoredTensor* same = index_.find(tensor.name);
    if (tensor.is_vector && same != nullptr && same->shape.elements() == tensor.shape.elements())
      tensor.shape = of_hub(same->shape);
  }

  static void take_type(HubTensor& tensor, const TensorPlan& t, std::optional<DType>& common) {
    const bool is_kept = t.matrix->kept.has_value();
    tensor.is_quantized = tensor.is_quantized || is_kept;
    const DType own = is_kept                              ? DType::bf16
                      : is_integer_vector(t.stored->dtype) ? t.stored->dtype
                                                           : kept_dtype(t.stored->dtype);
    common = common.value_or(own) == own ? own : DType::f32;
  }

  HubForm& form_;
  const Model& source_;
  const ReadPlan& plan_;
  const io::CheckpointIndex& index_;
  std::unordered_map<const Piece*, uint32_t> plan_tensors_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

HubForm hub_form(const ModelSource& source, const Model& model, const ReadPlan& plan,
                 const io::CheckpointIndex& index, bool is_hub) {
  const SourceFacts facts = source.facts();
  HubForm form{.model = read_model(source, {.layers = facts.layers}), .tensors = {}};
  if (!facts.layers.kv_heads.empty() || !facts.layers.mlp_widths.empty())
    fail(
        ErrorKind::refused,
        "{}: its layers differ in their numbers of KV heads, or in the widths of their MLPs, which "
        "the config.json of a {} cannot say",
        model.files.config_name, model.files.architecture);
  if (!is_hub) {
    refuse_without_class(form.model);
    each<ExpertsSpec>(form.model.spec, stack_as_layers);
  }
  const io::CheckpointIndex named = is_hub ? index : without_stacks(index, model);
  build_root(form.model, {}, &named, model.spec.has_head);
  DecoderSpec own = model.spec;
  MakeForm make(form, model, plan, index);
  make.make(FindDifferences(form.model.spec, own).find());
  make.set_shapes(hub_shapes(form.model));
  return form;
}

}  // namespace sluice
