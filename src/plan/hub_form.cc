#include "src/plan/hub_form.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>

#include "src/base/error.h"
#include "src/models/expert_layout.h"
#include "src/models/hub_shapes.h"
#include "src/plan/bind.h"

namespace sluice {

namespace {

void add_runs(const HubPart& part, std::vector<RowRun>& runs) {
  const auto& [param, piece, order, begin, sources] = part;
  const bool turned = order.kind == SourceOrder::Kind::turned;
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

  void make(const SourceDifferences& differences) {
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

  void add(const Param& hub, const Param& own, const SourceDifferences& differences) {
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
  make.make(source_differences(form.model.spec, own));
  make.set_shapes(hub_shapes(form.model));
  return form;
}

}  // namespace sluice
