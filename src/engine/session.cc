#include "src/engine/session.h"

#include <malloc.h>

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/engine/sampler.h"
#include "src/load/exchange.h"
#include "src/load/spill_directory.h"
#include "src/plan/bind.h"
#include "src/plan/host_rows.h"
#include "src/plan/kv_scales.h"
#include "src/plan/plan_lists.h"

namespace sluice {
namespace {

// Logits of many rows at once are a convenience: a vocabulary of 128k makes half a megabyte a row.
constexpr uint64_t kMostLogitsBytes = 32 * MiB;

// `all`: what a share is of.
uint64_t parse_budget(const char* option, const std::string& text, uint64_t all) {
  uint64_t bytes = parse_size(option, text, all);
  if (bytes == 0) fail(ErrorKind::usage, "{} {}: must be more than 0", option, text);
  return bytes;
}

Compute choose_compute(DtypeChoice choice, DType model) {
  if (choice == DtypeChoice::automatic) return model == DType::bf16 ? Compute::bf16 : Compute::f32;
  return choice == DtypeChoice::bf16 ? Compute::bf16 : Compute::f32;
}

}  // namespace

// The options are kept, because the ranks agree on an error, too, after all members have gone.
Session::Session(SessionOptions options, Session* target) try
    : options_(options),
      group_(options_.ranks != nullptr ? *options_.ranks : solo_),
      target_(target),
      own_ledger_(target == nullptr ? std::make_unique<Ledger>() : nullptr),
      ledger_(target == nullptr ? *own_ledger_ : target->ledger_),
      free_(target == nullptr ? free_memory() : target->free_),
      checkpoint_(options_.model, options_.mirrors, options_.needs_head, group_.rank(),
                  options_.dummy_weights),
      pool_(target != nullptr
                ? target->pool_
                : std::make_shared<ThreadPool>(
                      options_.threads > 0 ? options_.threads
                                           : std::max(usable_threads() / group_.sharing().cpus, 1),
                      options_.pin_threads)),
      backend_(target != nullptr             ? target->backend_
               : options_.backend != nullptr ? options_.backend
                                             : make_cpu_backend(options_.isa, *pool_)) {
  for (const std::filesystem::path& directory : options_.spill.directories)
    spill_bytes_ = std::max(spill_bytes_, spill_limit(directory, options_.spill.limit));
  can_spill_ = !options_.spill.directories.empty() && may_be_input_major(model(), index());
  if (target == nullptr) checkpoint_.load_tokenizer();
  compute_ = choose_compute(options_.dtype, checkpoint_.weights_dtype());
  if (is_float8(kv_dtype())) model().root->use_kv_scales(read_kv_scales(*model().root, index()));
  options_.quantize.to_bf16 = options_.dtype == DtypeChoice::bf16;
  options_.quantize.matrix_layout = backend_->matrix_layout();
  // Ranks of one host have equal parts of its memory, unless they are told theirs.
  const auto sharers = static_cast<uint64_t>(group_.sharing().host);
  budget_ = options_.memory
                ? parse_budget("--memory", *options_.memory, (free_.own + free_.free) / sharers)
                : free_.budget / sharers;
  rates_ = MachineRates(rate_setting(), options_.quantize);
  set_device_budget();
  if (target == nullptr) ledger_.set_budget(Place::host, budget_);
  if (tokenizer() != nullptr)
    grammars_ = std::make_unique<grammar::Grammars>(*tokenizer(), spec().vocab_size);
  set_limits();
  (target == nullptr ? *this : *target).note_runtime(peak_before_);
  if (auto cgroup = cgroup_memory()) cgroup_limit_ = cgroup->limit;
  check_place_rules();
  // Unsupported KV layouts are refused before weights are read.
  check_kv_supported(kv_layout(*model().root, run_shape(1, 1, 1)), *backend_);
  if (options_.longest_model_len) use_longest([](int64_t) { return DraftMemory{}; });
  loaded_ = std::make_unique<LoadedModel>(*model().root, *backend_, *pool_, ledger_, timeline_);
  if (options_.prompt_cache) need_one_rank("--prompt-cache");
  if (backend_->device().has_own_memory()) need_one_rank("--device");
  group_.agree(nullptr);
} catch (const Error& e) {
  if (options.ranks != nullptr && !options.ranks->is_over()) options.ranks->agree(&e);
} catch (...) {
  if (options.ranks != nullptr) options.ranks->break_off();
}

RateSetting Session::rate_setting() const {
  const Device& device = backend_->device();
  RateSetting setting;
  setting.model = options_.model;
  setting.mirrors = options_.mirrors;
  setting.stored = dtype_name(checkpoint_.weights_dtype());
  setting.device = device.info().name;
  setting.processor = device.has_own_memory()
                          ? setting.device
                          : fmt::format("{} {} threads", isa_name(options_.isa), pool_->size());
  setting.own_memory = device.has_own_memory();
  setting.memory_rate = device.info().memory_rate;
  setting.typical = options_.reader == io::ReaderKind::automatic && rank().size == 1;
  return setting;
}

// After a shrink passes of two kinds were timed.
void Session::learn_pass(double seconds) {
  if (past_peak_ == 0) rates_.learn_pass(*loaded_, seconds);
}

// Checks --max-model-len.
void Session::set_limits() {
  int64_t usable = spec().usable_positions();
  max_model_len_ = options_.max_model_len.value_or(usable);
  if (std::optional<int64_t> most = spec().most_positions(); most && max_model_len_ > *most) {
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
uint64_t Session::grown() const {
  const uint64_t peak = process_peak_rss(), now = peak > peak_before_ ? peak : process_rss();
  return now - std::min(now, rss_before_);
}

// Notes the process's memory after headers and tokenizer are read. The peak of reading them is
// known only if it is above every peak before.
void Session::note_runtime(uint64_t peak_before) {
  const uint64_t peak = process_peak_rss();
  map_program_code();
  malloc_trim(0);  // returns to the system what parsing freed
  runtime_bytes_ = process_rss();
  start_peak_ = std::max(start_peak_, peak > peak_before ? peak : runtime_bytes_);
}

// Sets the budget of a device with memory of its own: its free memory, less a reserve for other
// users of the device.
void Session::set_device_budget() {
  if (!backend_->device().has_own_memory()) return;
  const Rates rates = rates_.known();
  link_cost_ = rates.sweep.bytes_per_second / rates.link.bytes_per_second;
  host_cost_ = rates.sweep.bytes_per_second / rates.host.bytes_per_second;
  host_ = make_cpu_backend(options_.isa, *pool_);
  cpu_rows_ = options_.cpu_rows.value_or(host_rows(rates));
  if (target_ != nullptr) {
    device_budget_ = target_->device_budget_;
    return;
  }
  uint64_t free = backend_->device().free_bytes();
  device_budget_ = options_.device_memory
                       ? parse_budget("--device-memory", *options_.device_memory, free)
                       : free - std::min(free, std::clamp(free / 20, 64 * MiB, GiB));
  ledger_.set_budget(Place::device, device_budget_);
}

void Session::hold_input(std::string_view what, uint64_t bytes) {
  input_ = {};
  const uint64_t taken =
      placed_ ? memory_plan().needed() - Buffer::charged_bytes(placed_->shape.input_bytes)
              : runtime_bytes_ + kernel_bytes(runtime_bytes_);
  const uint64_t room = budget() - std::min(budget(), taken);
  if (bytes > room) {
    fail(ErrorKind::no_fit,
         "{} needs {} of memory, but only {} of the budget of {} are left; raise --memory", what,
         format_size(bytes), format_size(room), format_size(budget()));
  }
  if (bytes > 0) input_ = ledger_.lease(Place::host, Use::workspace, "input", bytes);
}

DType Session::kv_dtype() const {
  return options_.kv_dtype.value_or(compute_ == Compute::bf16 ? DType::bf16 : DType::f32);
}

RunShape Session::run_shape(int64_t max_tokens, int64_t longest_prompt, int64_t logits_rows,
                            int64_t sequences) const {
  auto row_bytes = static_cast<uint64_t>(model().root->logits_cols()) * sizeof(float);
  auto most_rows = static_cast<int64_t>(std::max<uint64_t>(kMostLogitsBytes / row_bytes, 1));
  return {.backend = backend_.get(),
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
          .device_budget = backend_->device().has_own_memory() ? device_budget() : UINT64_MAX,
          .link_cost = link_cost_,
          .host_cost = host_cost_,
          .host = host_.get(),
          .start_peak = start_peak_,
          .grouped = options_.quantize.makes_groups()};
}

void Session::check_place_rules() {
  for (const PlaceRule& rule : options_.place) {
    bool found = false;
    model().root->each_param(
        [&](const Param& p) { found = found || rule.pattern.matches(p.path); });
    if (!found) {
      fail(ErrorKind::usage, "--place {}: matches no parameter; `sluice inspect` lists them",
           rule.pattern.text());
    }
    if ((rule.tier == Tier::device || rule.by_cpu) && !backend_->device().has_own_memory()) {
      fail(ErrorKind::usage, "--place {}={}: this run has no device; choose host or disk",
           rule.pattern.text(), rule.by_cpu ? "cpu" : "device");
    }
  }
}

// Returns the longest sequence for which the plan is good, with one prompt that fills it. If the
// weights fit they stay in memory; if not, the KV cache gets at most a quarter of the budget that
// it is in.
int64_t Session::longest_sequence(const std::function<DraftMemory(int64_t tokens)>& draft) {
  auto plan_for = [&](int64_t tokens) {
    RunShape shape = run_shape(tokens, tokens, 1);
    shape.draft = draft(tokens);
    shape.sampling_bytes = Sampler::Scratch::bytes(spec().vocab_size);  // it may be asked for
    return fitting_plan(shape);
  };
  std::optional<MemoryPlan> shortest = plan_for(1);
  uint64_t kv_place = device_budget() > 0 ? device_budget() : budget();
  auto good = [&](int64_t tokens) {
    std::optional<MemoryPlan> plan = plan_for(tokens);
    return plan && plan->streams() == shortest->streams() &&
           (!plan->streams() || plan->all_kv_cache() <= kv_place / 4);
  };
  if (!shortest) {  // so that whatever is asked for is refused with what it needs
    options_.longest_model_len = false;
    return spec().usable_positions();
  }
  auto longer = std::views::iota(int64_t{2}, spec().usable_positions() + 1);
  return 1 + static_cast<int64_t>(std::ranges::partition_point(longer, good) - longer.begin());
}

// Input has a lease of its own.
void Session::lease_runtime() {
  runtime_ = {};
  runtime_ =
      ledger_.lease(Place::host, Use::runtime, "process",
                    memory_plan().runtime - Buffer::charged_bytes(placed_->shape.input_bytes));
}

std::shared_ptr<const Placed> Session::placed(const RunShape& shape, uint64_t budget) {
  MemoryPlan memory = plan_within(shape, budget, options_.quantize);
  RunShape with = counted(shape);
  auto read = std::make_shared<ReadPlan>(take_read_plan(memory));
  return std::make_shared<Placed>(Placed{std::move(with), std::move(memory), std::move(read)});
}

// Whoever is loaded first asks for what all need.
void Session::reserve_device() {
  if (target_ != nullptr) return target_->reserve_device();
  if (device_reserved_) return;
  backend_->device().reserve(predicted_device_peak());
  device_reserved_ = true;
}

void Session::fill(LoadProgress& progress, const std::stop_token& stop) {
  std::optional<LoadingRanks> ranks;  // an error on the way is told to the others
  if (rank().size > 1) ranks.emplace(group_);
  std::filesystem::path checkpoint = std::filesystem::canonical(options_.model);
  const FillOptions options{
      .reader = options_.reader,
      .read = rates_.read_shape().shape,
      .try_shapes = rates_.tries_shapes(),
      .spill = options_.spill,
      .spill_key = {std::move(checkpoint), options_.quantize.name(), model().root->rank()},
      .max_quant_error = options_.max_quant_error,
      .scheduler_slice = options_.scheduler_slice,
      .touch = options_.touch,
      .ranks = ranks ? &*ranks : nullptr,
      .calls = options_.calls};
  loaded_->fill(placed_, index(), options, progress, stop);
  rates_.learn_load(*loaded_);
}

// The most that exchanging the weights takes beside the run's memory. Headers and plan of the new
// ones are there before the old ones go; they are of the same model, and take about as much as
// those did. Then the load has its staging, where a stream was.
uint64_t Session::room_to_refill(const std::filesystem::path& model) const {
  const PlanLists lists = plan_lists(read_plan());
  const uint64_t before = headers_bytes_ + lists.plan + lists.making;
  const uint64_t load = read_plan().ring_bytes + lists.load;
  const uint64_t stream = memory_plan().stream;
  const uint64_t room = std::max(before, load - std::min(load, stream));
  const uint64_t needed = memory_plan().run_peak() + room;
  if (needed + kernel_bytes(needed) > budget()) {
    fail(ErrorKind::no_fit,
         "{}: loading it beside the run's own memory takes {}, and the budget is {}; give more "
         "--memory",
         model.string(), format_size(needed + kernel_bytes(needed)), format_size(budget()));
  }
  return room;
}

void Session::refill(const std::filesystem::path& model, LoadProgress& progress,
                     std::stop_token stop) {
  need_one_rank("exchanging the weights");
  const uint64_t room = room_to_refill(model);
  const PlanLists lists = plan_lists(read_plan());
  Lease beside = ledger_.lease(Place::host, Use::runtime, "headers of other weights",
                               headers_bytes_ + lists.plan + lists.making);
  std::optional<Checkpoint> next_checkpoint(
      std::in_place, model, std::vector<std::filesystem::path>{}, options_.needs_head);
  Checkpoint& other = *next_checkpoint;
  checkpoint_.check_same_model(other);
  if (!this->model().root->kv_scales().empty()) {
    fail(ErrorKind::usage,
         "{}: the FP8 KV cache uses the scales of {}'s checkpoint; weights cannot be exchanged "
         "with such a cache",
         model.string(), options_.model.string());
  }
  if (needs_spill()) {
    fail(ErrorKind::usage,
         "{}: weights cannot be exchanged while those of {} are streamed from a packed copy; give "
         "more --memory",
         model.string(), options_.model.string());
  }
  Placed next = *placed_;
  next.read = std::make_shared<ReadPlan>(compile(this->model(), other.index(), options_.quantize,
                                                 next.memory.buffers.staging, next.memory.placement,
                                                 next.memory.expert_slots));
  if (next.read->storage_bytes() != read_plan().storage_bytes()) {
    fail(ErrorKind::refused,
         "{}: its weights take {} where those of {} take {}; they are stored in other types",
         model.string(), format_size(next.read->storage_bytes()), options_.model.string(),
         format_size(read_plan().storage_bytes()));
  }
  loaded_->empty();
  ledger_.begin_phase("load");
  options_.model = model;
  options_.mirrors.clear();
  options_.dummy_weights = false;
  rates_ = MachineRates(rate_setting(), options_.quantize);
  past_peak_ = std::max(predicted_peak(), memory_plan().run_peak() + room);
  checkpoint_.take_tensors(std::move(other));
  placed_ = std::make_shared<Placed>(std::move(next));
  next_checkpoint.reset();
  beside = {};
  malloc_trim(0);
  fill(progress, stop);
  ledger_.begin_phase("run");
}

void Session::shrink(uint64_t budget) {
  if (budget >= budget_) return;
  if (rank().size > 1)
    return log::warning("the budget of a run on several ranks cannot be lowered");
  if (backend_->device().has_own_memory()) {
    log::warning("the budget cannot be lowered while the weights are on {}",
                 backend_->device().info().name);
    return;
  }
  budget_ = budget;
  auto next = std::make_shared<Placed>(*placed_);
  next->memory = sluice::shrink(memory_plan(), *model().root,
                                laid_out(options_.quantize, memory_plan().origin), next->shape,
                                this->budget(), runtime_bytes_);
  const MemoryPlan& plan = next->memory;
  if (plan.needed() > this->budget()) {
    log::warning("the budget is {} now, but the run needs {}", format_size(budget),
                 format_size(plan.needed()));
    budget_ = plan.needed();
  }
  next->read = std::make_shared<ReadPlan>(take_read_plan(plan));
  const uint64_t before = memory_plan().weights;
  past_peak_ = predicted_peak();
  loaded_->shrink(next);
  placed_ = std::move(next);
  if (target_ == nullptr) lease_runtime();
  ledger_.set_budget(Place::host, budget_);
  log::info("the budget is {} now: {} of weights stay in memory instead of {}, {} are read a pass",
            format_size(budget_), format_size(memory_plan().weights), format_size(before),
            format_size(memory_plan().sweep_bytes));
}

void Session::follow_cgroup() {
  std::optional<CgroupMemory> cgroup = cgroup_memory();
  std::optional<uint64_t> limit = cgroup ? cgroup->limit : std::nullopt;
  bool lowered = limit && (!cgroup_limit_ || *limit < *cgroup_limit_);
  cgroup_limit_ = limit;
  if (!lowered) return;
  uint64_t left = *limit - std::min(*limit, cgroup->used);
  uint64_t over = cgroup->used - std::min(*limit, cgroup->used);
  uint64_t own = process_rss() + left;
  shrink(own - std::min(own, over));
}

void follow_limits(Session& session, const std::atomic<int>& shrink, int& followed) {
  for (int asked = shrink.load(); followed < asked; ++followed)
    session.shrink(session.budget() / 4 * 3);
  session.follow_cgroup();
}

Runner& Session::runner() {
  Runner* runner = loaded_->runner();
  return runner != nullptr ? *runner : loaded_->make_runner(block_costs(), group_);
}

PromptCache Session::prompt_cache(const std::filesystem::path& path, int64_t prompt_tokens) {
  TextChecksum text;
  text.add(index().identity() + model().files.config.dump());
  for (const ParamPlan& p : read_plan().params)
    text.add(fmt::format("{} {}\n", p.param->path, dtype_name(p.format.dtype)));
  text.add(fmt::format("{} {} {} {}\n", options_.quantize.name(), static_cast<int>(compute_),
                       dtype_name(placed_->shape.kv_dtype), placed_->shape.block_size));
  if (spec().depends_on_length()) text.add(fmt::format("{}\n", prompt_tokens));
  return runner().prompt_cache(path, text.digits());
}

BlockCosts Session::block_costs() const {
  const std::filesystem::path& swap = options_.swap.directory;
  const Rates rates = rates_.known_of(swap.empty() ? options_.model : swap);
  uint64_t slot = kv_layout(*model().root, placed_->shape).slot_bytes();
  return predict_block_costs(slot, placed_->shape.block_size, read_plan(), rates);
}

void Session::release() {
  loaded_->release();
  device_reserved_ = false;
  malloc_trim(0);
}

void Session::reload(LoadProgress& progress, const std::stop_token& stop) {
  ledger_.begin_phase("load");
  reserve_device();
  fill(progress, stop);
}

}  // namespace sluice
