#include "src/engine/planner.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/engine/sampler.h"
#include "src/load/spill_directory.h"
#include "src/plan/bind.h"
#include "src/plan/host_rows.h"
#include "src/plan/kv_scales.h"

namespace sluice {
namespace {

// Logits of many rows at once are a convenience: a vocabulary of 128k makes half a megabyte a row.
constexpr uint64_t kMostLogitsBytes = 32 * MiB;

Compute choose_compute(DtypeChoice choice, DType model) {
  if (choice == DtypeChoice::automatic) return model == DType::bf16 ? Compute::bf16 : Compute::f32;
  return choice == DtypeChoice::bf16 ? Compute::bf16 : Compute::f32;
}

DraftMemory draft_memory(const MemoryPlan& plan) {
  return {.host = plan.run_peak(), .loading = plan.load_peak(), .device = plan.device.peak()};
}

std::optional<PartGroup> ranks_of_stage(const ModelOptions& options, const Group& group) {
  const Rank all = group.rank();
  const int stages = options.pipeline_parallel_size;
  if (stages == 1) return std::nullopt;
  if (all.size % stages != 0)
    fail(ErrorKind::usage, "--pipeline-parallel-size {}: does not divide the {} ranks", stages,
         all.size);
  const int ranks = all.size / stages;
  return std::optional<PartGroup>(std::in_place, group, Share{all.rank / ranks * ranks, ranks});
}

}  // namespace

// The options are kept, because the ranks agree on an error, too, after all members have gone.
Planner::Planner(ModelOptions options, Planner* target) try
    : options_(options),
      group_(options_.ranks != nullptr ? *options_.ranks : solo_),
      stage_ranks_(ranks_of_stage(options_, group_)),
      own_machine_(target == nullptr ? std::make_unique<Machine>(options_, group_) : nullptr),
      machine_(target == nullptr ? *own_machine_ : target->machine_),
      checkpoint_({options_.model, options_.mirrors, options_.outside_links}, options_.needs_head,
                  tensor_group().rank(), options_.dummy_weights,
                  {tensor_group().rank().rank, tensor_group().rank().size}, part_request()) {
  for (const std::filesystem::path& directory : options_.spill.directories)
    spill_bytes_ = std::max(spill_bytes_, spill_limit(directory, options_.spill.limit));
  can_spill_ = !options_.spill.directories.empty() &&
               may_be_input_major(checkpoint_.model(), checkpoint_.index());
  if (target == nullptr) checkpoint_.load_tokenizer();
  compute_ = choose_compute(options_.dtype, checkpoint_.weights_dtype());
  CausalLM& root = *checkpoint_.model().root;
  if (is_float8(kv_dtype())) root.use_kv_scales(read_kv_scales(root, checkpoint_.index()));
  options_.quantize.to_bf16 = options_.dtype == DtypeChoice::bf16;
  options_.quantize.matrix_layout = machine_.backend().matrix_layout();
  rates_ = MachineRates(rate_setting(), options_.quantize);
  set_device_costs();
  set_limits();
  machine_.note_process(peak_before_);
  check_place_rules();
  // Unsupported KV layouts are refused before weights are read.
  check_kv_supported(kv_layout(root, run_shape(1, 1, 1)), machine_.backend());
  if (options_.longest_model_len) {
    use_longest([](int64_t) { return DraftMemory{}; });
    group_.agree(nullptr);
    max_model_len_ = std::ranges::min(group_.gather(max_model_len_));
  }
  if (options_.prompt_cache) need_one_rank("--prompt-cache");
  group_.agree(nullptr);
} catch (const Error& e) {
  if (options.ranks != nullptr && !options.ranks->is_over()) options.ranks->agree(&e);
} catch (...) {
  if (options.ranks != nullptr) options.ranks->break_off();
}

// Gathers the budgets of all stages, by which they divide the layers: a stage's is that of the rank
// with the least. Every rank is here, or all throw.
PartRequest Planner::part_request() const {
  PartRequest request{.whole_experts = options_.expert_parallel};
  if (options_.pipeline_parallel_size == 1) return request;
  group_.agree(nullptr);
  const std::vector<uint64_t> budgets = group_.gather(machine_.budget());
  const int ranks = tensor_group().rank().size;
  request.stage = rank().rank / ranks;
  for (auto first = budgets.begin(); first != budgets.end(); first += ranks)
    request.budgets.push_back(*std::min_element(first, first + ranks));
  return request;
}

RateSetting Planner::rate_setting() const {
  const Device& device = machine_.backend().device();
  RateSetting setting;
  setting.model = options_.model;
  setting.mirrors = options_.mirrors;
  setting.stored = dtype_name(checkpoint_.weights_dtype());
  setting.device = device.info().name;
  setting.processor = device.has_own_memory() ? setting.device
                                              : fmt::format("{} {} threads", isa_name(options_.isa),
                                                            machine_.pool().size());
  setting.own_memory = device.has_own_memory();
  setting.memory_rate = device.info().memory_rate;
  setting.typical = options_.reader == io::ReaderKind::automatic && rank().size == 1;
  return setting;
}

// Checks --max-model-len.
void Planner::set_limits() {
  const DecoderSpec& spec = checkpoint_.spec();
  int64_t usable = spec.usable_positions();
  max_model_len_ = options_.max_model_len.value_or(usable);
  if (std::optional<int64_t> most = spec.most_positions(); most && max_model_len_ > *most) {
    fail(ErrorKind::usage, "--max-model-len {}: the model has a table of {} positions, and no more",
         max_model_len_, *most);
  }
  if (max_model_len_ > usable) {
    log::warning("--max-model-len {} is above the {} positions that the model was made for",
                 max_model_len_, usable);
  }
}

// Returns the growth of the process since this began [bytes]. A peak that was there before says
// nothing.
uint64_t Planner::grown() const {
  const uint64_t peak = process_peak_rss(), now = peak > peak_before_ ? peak : process_rss();
  return now - std::min(now, rss_before_);
}

void Planner::set_device_costs() {
  if (machine_.host() == nullptr) return;
  const Rates rates = rates_.known();
  link_cost_ = rates.sweep.bytes_per_second / rates.link.bytes_per_second;
  host_cost_ = rates.sweep.bytes_per_second / rates.host.bytes_per_second;
  cpu_rows_ = options_.cpu_rows.value_or(host_rows(rates));
}

DType Planner::kv_dtype() const {
  return options_.kv_dtype.value_or(compute_ == Compute::bf16 ? DType::bf16 : DType::f32);
}

RunShape Planner::run_shape(int64_t max_tokens, int64_t longest_prompt, int64_t logits_rows,
                            int64_t sequences) const {
  const CausalLM& root = *checkpoint_.model().root;
  auto row_bytes = static_cast<uint64_t>(root.logits_cols()) * sizeof(float);
  auto most_rows = static_cast<int64_t>(std::max<uint64_t>(kMostLogitsBytes / row_bytes, 1));
  Backend& backend = machine_.backend();
  return {.backend = &backend,
          .max_tokens = max_tokens,
          .longest_prompt = longest_prompt,
          .logits_rows = std::min(logits_rows, most_rows),
          .block_size = options_.block_size,
          .kv_dtype = kv_dtype(),
          .compute = compute_,
          .spill_bytes = spill_bytes_,
          .rules = options_.place,
          .sequences = sequences,
          .read = rates_.read_shape().is_settled() ? rates_.read_shape().shape : io::ReadShape{},
          .kv_bytes = options_.kv_bytes,
          .swap = options_.swap,
          .prompt_cache = options_.prompt_cache,
          .longest_sequence = std::min(max_tokens, max_model_len_),
          .device_budget = machine_.host() != nullptr ? machine_.device_budget() : UINT64_MAX,
          .link_cost = link_cost_,
          .host_cost = host_cost_,
          .host = machine_.host(),
          .start_peak = start_peak(),
          .grouped = options_.quantize.makes_groups()};
}

void Planner::check_place_rules() {
  const bool has_device = machine_.host() != nullptr;
  for (const PlaceRule& rule : options_.place) {
    bool found = false;
    checkpoint_.model().root->each_param(
        [&](const Param& p) { found = found || rule.pattern.matches(p.path); });
    if (!found && checkpoint_.model().root->stage().count() == 1) {
      fail(ErrorKind::usage, "--place {}: matches no parameter; `sluice inspect` lists them",
           rule.pattern.text());
    }
    if ((rule.tier == Tier::device || rule.by_cpu) && !has_device) {
      fail(ErrorKind::usage, "--place {}={}: this run has no device; choose host or disk",
           rule.pattern.text(), rule.by_cpu ? "cpu" : "device");
    }
  }
}

// Returns the longest sequence for which the plan is good, with one prompt that fills it. If the
// weights fit they stay in memory; if not, the KV cache gets at most a quarter of the budget that
// it is in.
int64_t Planner::longest_sequence(const std::function<DraftMemory(int64_t tokens)>& draft) {
  const DecoderSpec& spec = checkpoint_.spec();
  auto plan_for = [&](int64_t tokens) {
    RunShape shape = run_shape(tokens, tokens, 1);
    shape.draft = draft(tokens);
    shape.sampling_bytes = Sampler::Scratch::bytes(spec.vocab_size);  // it may be asked for
    return fitting_plan(shape);
  };
  std::optional<MemoryPlan> shortest = plan_for(1);
  const uint64_t device = machine_.device_budget();
  const uint64_t kv_place = device > 0 ? device : machine_.budget();
  auto good = [&](int64_t tokens) {
    std::optional<MemoryPlan> plan = plan_for(tokens);
    return plan && plan->streams() == shortest->streams() &&
           (!plan->streams() || plan->all_kv_cache() <= kv_place / 4);
  };
  if (!shortest) {  // so that whatever is asked for is refused with what it needs
    options_.longest_model_len = false;
    return spec.usable_positions();
  }
  auto longer = std::views::iota(int64_t{2}, spec.usable_positions() + 1);
  return 1 + static_cast<int64_t>(std::ranges::partition_point(longer, good) - longer.begin());
}

std::optional<MemoryPlan> Planner::fitting_plan(const RunShape& shape) {
  try {
    return plan_within(shape, machine_.budget(), options_.quantize);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::no_fit) throw;
    return std::nullopt;
  }
}

MemoryPlan Planner::predict(const RunShape& shape) {
  if (auto plan = fitting_plan(shape)) return *std::move(plan);
  return smallest(shape);
}

ReadPlan& Planner::laid_out(const QuantizeRequest& quantize, Origin origin) {
  if (!laid_out_ || laid_out_->quantize != quantize || laid_out_->origin != origin) {
    const uint64_t before = process_peak_rss();
    laid_out_.reset();
    laid_out_.emplace(quantize, origin,
                      lay_out(checkpoint_.model(), checkpoint_.index(), quantize, origin));
    laid_out_->plan.expert_reuse = rates_.expert_reuse();
    if (machine_.host() != nullptr) set_host_rows(laid_out_->plan, cpu_rows_, options_.place);
    // A draft model's plan counts its memory beside its target.
    if (const uint64_t peak = process_peak_rss(); !is_beside() && peak > before)
      machine_.note_peak(peak);
  }
  return laid_out_->plan;
}

SpillKey Planner::spill_key(const QuantizeRequest& quantize) const {
  const CausalLM& root = *checkpoint_.model().root;
  SpillKey key{std::filesystem::canonical(options_.model), quantize.name(), tensor_group().rank()};
  if (root.stage().count() > 1)
    key.part = fmt::format("layers {}+{}", root.layers().begin, root.layers().count);
  else if (options_.expert_parallel)
    key.part = "experts";
  return key;
}

Origin Planner::streamed_origin(const QuantizeRequest& quantize) {
  if (!can_spill_) return Origin::checkpoint;
  if (!spill_room_ || spill_room_->first != quantize) {
    const ReadPlan& plan = laid_out(quantize, Origin::spill);
    const bool has_room =
        Spill::has_room(plan, checkpoint_.index(), spill_key(quantize), options_.spill);
    spill_room_ = {quantize, has_room};
    if (!has_room)
      log::debug(
          "no spill directory has room for {} of weights that cannot be streamed as they are",
          format_size(needed_file_bytes(plan)));
  }
  return spill_room_->second ? Origin::spill : Origin::checkpoint;
}

// Adds the peak of laying out.
RunShape Planner::counted(RunShape shape) const {
  shape.start_peak = std::max(shape.start_peak, start_peak());
  return shape;
}

// Input-major matrices are read from the checkpoint if they can all stay in memory.
MemoryPlan Planner::plan_within(const RunShape& shape, uint64_t budget,
                                const QuantizeRequest& quantize) {
  const CausalLM& root = *checkpoint_.model().root;
  if (can_spill_) {
    ReadPlan& resident = laid_out(quantize, Origin::checkpoint);
    auto plan = try_place(root, resident, counted(shape), budget, process_bytes());
    if (plan) return *std::move(plan);
  }
  ReadPlan& all = laid_out(quantize, streamed_origin(quantize));
  return sluice::place(root, all, counted(shape), budget, process_bytes());
}

double Planner::tokens_per_second(const MemoryPlan& plan, const QuantizeRequest& quantize,
                                  int64_t sequences) {
  return predict_speed(plan, laid_out(quantize, plan.origin), rates_.known(quantize), sequences) *
         checkpoint().model().root->stage().share();
}

ReadPlan Planner::read_plan_for(const MemoryPlan& plan, const QuantizeRequest& quantize) {
  return compile(laid_out(quantize, plan.origin), plan.buffers.staging, plan.placement,
                 plan.expert_slots);
}

ReadPlan Planner::take_read_plan(const MemoryPlan& plan) {
  ReadPlan all = std::move(laid_out(options_.quantize, plan.origin));
  laid_out_.reset();
  return compile(std::move(all), plan.buffers.staging, plan.placement, plan.expert_slots);
}

bool Planner::can_be_resident(const RunShape& shape) {
  ReadPlan& all = laid_out(options_.quantize, Origin::checkpoint);
  return sluice::can_be_resident(*checkpoint_.model().root, all, counted(shape), machine_.budget(),
                                 process_bytes());
}

MemoryPlan Planner::smallest(const RunShape& shape) {
  ReadPlan& all = laid_out(options_.quantize, streamed_origin(options_.quantize));
  return smallest_plan(*checkpoint_.model().root, all, counted(shape), process_bytes());
}

std::shared_ptr<const Placed> Planner::placed(const RunShape& shape, uint64_t budget) {
  MemoryPlan memory = plan_within(shape, budget, options_.quantize);
  RunShape with = counted(shape);
  auto read = std::make_shared<ReadPlan>(take_read_plan(memory));
  return std::make_shared<Placed>(Placed{std::move(with), std::move(memory), std::move(read)});
}

RunShape Planner::least_beside(const RunShape& shape, RunShape target_shape) {
  ReadPlan& all = laid_out(options_.quantize, Origin::checkpoint);
  target_shape.draft = draft_memory(
      smallest_resident_plan(*checkpoint_.model().root, all, counted(shape), process_bytes()));
  return target_shape;
}

std::shared_ptr<const Placed> Planner::place_beside(Planner& target, const RunShape& shape,
                                                    RunShape& target_shape) {
  auto has_room = [&](const MemoryPlan& plan) {
    target_shape.draft = draft_memory(plan);
    return plan.peak() <= machine_.budget() / 2 &&
           plan.device.peak() <= machine_.device_budget() / 2 &&
           target.fits(target.smallest(target_shape));
  };
  ReadPlan& all = laid_out(options_.quantize, Origin::checkpoint);
  MemoryPlan plan =
      resident_plan(*checkpoint_.model().root, all, counted(shape), process_bytes(), has_room);
  target_shape.draft = draft_memory(plan);
  auto read = std::make_shared<ReadPlan>(take_read_plan(plan));
  return std::make_shared<Placed>(Placed{shape, std::move(plan), std::move(read)});
}

std::shared_ptr<const Placed> Planner::placed_smaller(const Placed& placed) {
  auto next = std::make_shared<Placed>(placed);
  ReadPlan& all = laid_out(options_.quantize, placed.memory.origin);
  next->memory = shrink(placed.memory, *checkpoint_.model().root, all, next->shape,
                        machine_.budget(), process_bytes());
  next->read = std::make_shared<ReadPlan>(take_read_plan(next->memory));
  return next;
}

std::shared_ptr<const Placed> Planner::placed_instead(const Placed& placed,
                                                      const Checkpoint& other) {
  checkpoint_.check_same_model(other);
  const std::string now = options_.model.string(), then = other.path().string();
  if (!checkpoint_.model().root->kv_scales().empty()) {
    fail(ErrorKind::usage,
         "{}: the FP8 KV cache uses the scales of {}'s checkpoint; weights cannot be exchanged "
         "with such a cache",
         then, now);
  }
  if (placed.memory.origin == Origin::spill) {
    fail(ErrorKind::usage,
         "{}: weights cannot be exchanged while those of {} are streamed from a packed copy; give "
         "more --memory",
         then, now);
  }
  auto next = std::make_shared<Placed>(placed);
  next->read = std::make_shared<ReadPlan>(
      compile(checkpoint_.model(), other.index(), options_.quantize, placed.memory.buffers.staging,
              placed.memory.placement, placed.memory.expert_slots));
  const uint64_t bytes = next->read->storage_bytes(), before = placed.read->storage_bytes();
  if (bytes != before) {
    fail(ErrorKind::refused,
         "{}: its weights take {} where those of {} take {}; they are stored in other types", then,
         format_size(bytes), now, format_size(before));
  }
  return next;
}

void Planner::take_checkpoint(const std::filesystem::path& model, Checkpoint&& other) {
  options_.model = model;
  options_.mirrors.clear();
  options_.dummy_weights = false;
  rates_ = MachineRates(rate_setting(), options_.quantize);
  laid_out_.reset();
  checkpoint_.take_tensors(std::move(other));
}

}  // namespace sluice
