#include "src/engine/runner.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "src/base/error.h"
#include "src/base/thread.h"
#include "src/base/units.h"
#include "src/device/range.h"

namespace sluice {
namespace {

KvStorage make_storage(const CausalLM& model, Device& device, DeviceStream& stream, Ledger& ledger,
                       const KvLayout& layout, const MemoryPlan& plan, const RunShape& shape,
                       Buffer::Touch touch) {
  KvStorage::Swap swap{plan.swap_blocks, plan.disk_blocks, shape.swap.directory};
  bool scales = is_float8(shape.kv_dtype);
  return {device,
          stream,
          ledger,
          layout,
          plan.kv_blocks,
          swap,
          scales ? model.kv_scales() : std::span<const KvScales>{},
          touch};
}

BlockOptions block_options(const KvLayout& layout, const MemoryPlan& plan, const RunShape& shape,
                           const BlockCosts& costs) {
  return {.block_size = shape.block_size,
          .groups = layout.groups,
          .blocks = {plan.kv_blocks, plan.swap_blocks, plan.disk_blocks},
          .costs = costs,
          .snapshot_tokens = kSnapshotTokens};
}

}  // namespace

Runner::Runner(const CausalLM& model, Ledger& ledger, const MemoryPlan& plan, const RunShape& shape,
               const BlockCosts& costs, const RankGroups& groups, Buffer::Touch touch)
    : model_(model),
      ledger_(ledger),
      logits_rows_(std::min(shape.logits_rows, plan.chunk_rows)),
      device_(shape.backend->device()),
      stream_(device_.stream()),
      layout_(kv_layout(model, shape)),
      needs_(workspace_needs(model, layout_, shape, plan.chunk_rows)),
      workspace_memory_(device_.memory(ledger, Use::workspace, "kernels",
                                       shape.backend->kernels_bytes(needs_).device,
                                       Buffer::Touch::now)),
      workspace_host_(ledger, Use::workspace, "kernels", shape.backend->kernels_bytes(needs_).host,
                      Buffer::Touch::now),
      activation_memory_(
          device_.memory(ledger, Use::activations, "activations",
                         Activations::bytes(model.spec(), plan.chunk_rows, model.rank()), touch)),
      rope_memory_(ledger, Use::activations, "rope", rope_bytes(needs_), Buffer::Touch::now),
      logits_memory_(
          device_.memory(ledger, Use::activations, "logits", logits_bytes(), Buffer::Touch::now)),
      logits_host_(ledger, Use::activations, "logits",
                   device_.has_own_memory() ? logits_bytes() : 0, Buffer::Touch::now),
      routing_host_(
          ledger, Use::activations, "routing",
          device_.has_own_memory() ? Activations::host_bytes(model.spec(), plan.chunk_rows) : 0,
          Buffer::Touch::now),
      groups_(groups),
      gathered_memory_(device_.memory(ledger, Use::workspace, "sums of ranks",
                                      gathered_bytes(model, shape), Buffer::Touch::now)),
      kv_(make_storage(model, device_, *stream_, ledger, layout_, plan, shape, touch)),
      blocks_(block_options(layout_, plan, shape, costs)),
      activations_(std::make_unique<Activations>(model.spec(), plan.chunk_rows, model.rank(),
                                                 activation_memory_.bytes(),
                                                 routing_host_.bytes())),
      kv_rows_(blocks_.groups()),
      alibi_slopes_(model.alibi_slopes()) {
  step_.groups.resize(blocks_.groups());
  for (const Buffer* host : {&workspace_host_, &logits_host_, &routing_host_})
    pinned_.push_back(device_.pin(host->bytes()));
  kernels_ = shape.backend->kernels(shape.compute, needs_, *stream_,
                                    {workspace_memory_.bytes(), workspace_host_.bytes()});
  if (plan.host_products.rows > 0) open_host(plan, shape);
  if (groups_.devices != nullptr)
    device_group_.emplace(groups_.tensor, *groups_.devices, gathered_memory_.bytes());
  find_stretches();
  if (touch == Buffer::Touch::now) return;
  toucher_ = start_thread<std::jthread>(
      {"touching memory"}, [this](const std::stop_token& stop) { touch_memory(stop); });
}

void Runner::open_host(const MemoryPlan& plan, const RunShape& shape) {
  const HostProducts& most = plan.host_products;
  const WorkspaceNeeds needs = host_workspace_needs(model_, most);
  const auto buffer = [&](Use use, std::string_view owner, uint64_t bytes) {
    return Buffer(ledger_, use, owner, bytes, Buffer::Touch::now);
  };
  beside_ = std::make_unique<Beside>();
  Beside& b = *beside_;
  const uint64_t rows = Activations::bytes(model_.spec(), most.rows, model_.rank());
  const auto floats = static_cast<uint64_t>(most.inputs + most.outputs);
  b.workspace = buffer(Use::workspace, "CPU kernels", shape.host->kernels_bytes(needs).device);
  b.activation_memory = buffer(Use::activations, "CPU activations", rows);
  b.products = buffer(Use::activations, "CPU products", floats * sizeof(float));
  for (const Buffer* memory : {&b.activation_memory, &b.products})
    b.pinned.push_back(device_.pin(memory->bytes()));
  b.kernels = shape.host->kernels(shape.compute, needs, host_stream(), {b.workspace.bytes(), {}});
  b.activations.emplace(model_.spec(), most.rows, model_.rank(), b.activation_memory.bytes());
  auto* products = reinterpret_cast<float*>(b.products.data());
  b.side.emplace(*b.kernels, device_, std::span(products, static_cast<size_t>(most.inputs)),
                 std::span(products + most.inputs, static_cast<size_t>(most.outputs)));
  activations_->set_host(&*b.activations);
}

void Runner::touch_memory(const std::stop_token& stop) const {
  constexpr uint64_t kPart = 4 * MiB;  // so that who ends this waits little
  constexpr int kLast = 19;
  setpriority(PRIO_PROCESS, 0, kLast);  // of this thread: steps go first
  for (const Buffer* memory : {&activation_memory_, &kv_.memory()}) {
    const uint64_t size = memory->bytes().size();
    for (uint64_t at = 0; at < size && !stop.stop_requested(); at += kPart)
      memory->touch(at, std::min(kPart, size - at));
  }
}

double Runner::matrices_seconds(std::span<const Weight> matrices) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kEnough{200};
  constexpr int64_t kAlignment = 16;  // elements
  auto* memory = reinterpret_cast<float*>(activation_memory_.data());
  const auto room = static_cast<int64_t>(activation_memory_.bytes().size() / sizeof(float));
  std::fill_n(memory, room, 0.0F);
  std::vector<double> seconds;
  const auto begin = Clock::now();
  for (auto start = begin; seconds.empty() || start - begin < kEnough;) {
    for (const Weight& w : matrices) {
      const int64_t inputs = ceil_div(w.cols, kAlignment) * kAlignment;
      check(inputs + w.rows <= room, "activations are smaller than a matrix's input and output");
      const Tensor x{activation_memory_.data(), DType::f32, 1, w.cols, w.cols};
      const Tensor y{reinterpret_cast<std::byte*>(memory + inputs), DType::f32, 1, w.rows, w.rows};
      kernels_->linear(x, w, nullptr, y);
    }
    const auto now = Clock::now();
    seconds.push_back(std::chrono::duration<double>(now - start).count());
    start = now;
  }
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

// Waits for the device, which may still work in the runner's memory.
Runner::~Runner() {
  try {
    stream_->synchronize();
  } catch (const Error&) {  // whoever asked for the work has been told, or has gone
  }
}

void Runner::stop_steps(std::string why) {
  stream_->synchronize();
  stretches_.clear();  // their graphs know where the weights were
  stopped_ = std::move(why);
}

void Runner::use_new_weights() {
  ++generation_;
  stopped_.clear();
  find_stretches();
}

void Runner::find_stretches() {
  const size_t units = model_.forward_units();
  for (size_t unit = 0; unit < units; ++unit) {
    bool waits = model_.waits(*kernels_, unit) || device_group_;
    model_.units()[unit]->each_param([&](const Param& p) { waits |= p.stream != nullptr; });
    if (stretches_.empty() || waits || stretches_.back().graphs == nullptr) {
      auto graphs = waits ? nullptr : std::make_unique<StepGraphs>(device_, *stream_, ledger_);
      stretches_.push_back({unit, unit, std::move(graphs)});
    }
    stretches_.back().last = unit;
  }
  // The embedding alone, or the last norm, is one kernel.
  for (Stretch& s : {std::ref(stretches_.front()), std::ref(stretches_.back())}) {
    if (s.first == s.last) s.graphs.reset();
  }
}

GraphStats Runner::graphs() const {
  GraphStats sum;
  for (const Stretch& s : stretches_) {
    if (s.graphs == nullptr) continue;
    sum.captured += s.graphs->stats().captured;
    sum.launched += s.graphs->stats().launched;
  }
  return sum;
}

Sequence Runner::new_sequence(int64_t prompt_tokens) {
  return Sequence(blocks_, root_of(prompt_tokens));
}

void Runner::begin_again(Sequence& sequence, int64_t tokens) const {
  sequence.begin_again(root_of(tokens));
}

// Returns the root of the prefixes of a sequence. Sequences with the same root may share blocks.
uint64_t Runner::root_of(int64_t prompt_tokens) const {
  constexpr int kTokenBits = 48;  // of a prompt's length
  bool depends = model_.spec().depends_on_length();
  const uint64_t length = depends ? static_cast<uint64_t>(prompt_tokens) : 0;
  return generation_ << kTokenBits | length;
}

// Does work for which ranks wait for one another: if it fails on one, the others cannot go on.
template <class Work>
void Runner::with_ranks(Work work) {
  try {
    work();
  } catch (...) {
    groups_.all.break_off();
    throw;
  }
}

Tensor Runner::step(std::span<const StepPart> parts) {
  Range range("step");
  if (!stopped_.empty()) fail(ErrorKind::runtime, "{}", stopped_);
  step_.clear();
  for (const StepPart& part : parts) add_part(part);
  check(!step_.ids.empty(), "a step without rows");
  if (leads()) {
    message_.clear();
    message_.put(RankCommand::step);
    step_.write(message_);
    groups_.all.tell(message_.bytes());
  }
  with_ranks([&] { compute_step(); });
  for (const StepPart& part : parts) part.sequence->grow(std::ssize(part.ids));
  return model_.hidden(*activations_, std::ssize(step_.ids));
}

void Runner::compute_step() {
  moves_.clear();
  positions_.clear();
  const auto rows = std::ssize(step_.ids);
  for (const StepData::Part& part : step_.parts) {
    const int64_t first = model_.spec().first_position + part.position;
    for (int64_t i = 0; i < part.rows; ++i) positions_.push_back(static_cast<int32_t>(first + i));
    fill_rope(part);
  }
  if (!step_.copies.empty()) move_blocks(step_.copies, false);
  for (size_t g = 0; g < kv_rows_.size(); ++g)
    kv_rows_[g] = {step_.groups[g].chunks, step_.groups[g].slots};
  StepRows step = kernels_->upload({.ids = step_.ids,
                                    .host_ids = step_.ids,
                                    .kv = kv_rows_,
                                    .cos = rope_rows(0, 0, rows),
                                    .sin = rope_rows(1, 0, rows),
                                    .positions = positions_,
                                    .host_positions = positions_,
                                    .alibi_slopes = alibi_slopes_});
  if (!model_.stage().is_first()) receive_rows(rows);
  for (const Stretch& stretch : stretches_) {
    auto forward = [&] {
      for (size_t unit = stretch.first; unit <= stretch.last; ++unit)
        model_.forward(context(), {step, kv_.layers()}, *activations_, unit);
    };
    if (stretch.graphs != nullptr && step.launches) {
      stretch.graphs->run(*step.launches, forward);
    } else {
      forward();
    }
  }
  if (!model_.stage().is_last()) send_rows(rows);
}

namespace {

// The bytes of a tensor's rows, padding included.
std::span<std::byte> bytes_of(const Tensor& rows) {
  return {rows.data, static_cast<size_t>(rows.rows * rows.stride) * sizeof(float)};
}

}  // namespace

// Does something with bytes of the model's memory, kPassedBytes at a time where they go through the
// pinned memory of the logits, as the device has its own memory. Logits differ in size from stage
// to stage.
template <class Work>
void Runner::through_host(std::span<std::byte> bytes, const Work& work) {
  const std::span<std::byte> through =
      device_.has_own_memory() ? logits_host_.bytes() : std::span<std::byte>();
  const size_t most =
      through.empty() ? bytes.size() : std::min<size_t>(through.size(), kPassedBytes);
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(most, bytes.size()))) {
    const std::span<std::byte> part = bytes.first(std::min(most, bytes.size()));
    work(part, through.empty() ? part : through.first(part.size()));
  }
}

void Runner::send(int to, std::span<std::byte> bytes) {
  through_host(bytes, [&](std::span<std::byte> part, std::span<std::byte> on_host) {
    if (part.data() != on_host.data()) stream_->copy(on_host.data(), part.data(), part.size());
    stream_->synchronize();
    groups_.all.send(to, on_host);
  });
}

void Runner::receive(int from, std::span<std::byte> bytes) {
  through_host(bytes, [&](std::span<std::byte> part, std::span<std::byte> on_host) {
    stream_->synchronize();
    groups_.all.receive(from, on_host);
    if (part.data() != on_host.data()) stream_->copy(part.data(), on_host.data(), part.size());
  });
}

// Receives what the layers before this stage's leave to it: each rank from the one in its place in
// the stage before.
void Runner::receive_rows(int64_t rows) {
  for (const Tensor& part : activations_->passed_on(rows))
    if (part.stride > 0)
      receive(groups_.all.rank().rank - groups_.tensor.rank().size, bytes_of(part));
}

void Runner::send_rows(int64_t rows) {
  for (const Tensor& part : activations_->passed_on(rows))
    if (part.stride > 0) send(groups_.all.rank().rank + groups_.tensor.rank().size, bytes_of(part));
}

void Runner::add_part(const StepPart& part) {
  Sequence& sequence = *part.sequence;
  const int64_t first_row = std::ssize(step_.ids);
  const int64_t rows = std::ssize(part.ids);
  const int64_t first = sequence.length();
  check(first_row + rows <= max_rows(), "a step has too many rows");
  if (!sequence.table().reserve(first, first + rows, step_.copies, part.rewindable)) {
    fail(ErrorKind::no_fit,
         "the KV cache is full after {} tokens; raise --memory or lower --max-tokens", first);
  }
  step_.ids.insert(step_.ids.end(), part.ids.begin(), part.ids.end());
  step_.parts.push_back({first_row, rows, first, part.rope_length});
  for (size_t g = 0; g < step_.groups.size(); ++g) {
    StepData::GroupRows& kv = step_.groups[g];
    for (int64_t i = 0; i < rows && !blocks_.is_state(g); ++i)
      kv.slots.push_back(sequence.table().slot(g, first + i));
    kv.chunks.push_back({first_row, rows, first, sequence.table().blocks(g)});
  }
}

// Rows of cos (matrix 0) or sin (1).
Tensor Runner::rope_rows(int64_t matrix, int64_t first_row, int64_t rows) const {
  Tensor both{rope_memory_.data(), DType::f32, 2 * needs_.max_rows, needs_.rope_cols,
              needs_.rope_cols};
  return both.rows_from(matrix * needs_.max_rows + first_row, rows);
}

void Runner::fill_rope(const StepData::Part& part) {
  const std::span<const RopeConfig> ropes = model_.spec().ropes;
  if (ropes.empty()) return;
  int64_t position = part.position;
  Tensor cos = rope_rows(0, part.first_row, part.rows);
  Tensor sin = rope_rows(1, part.first_row, part.rows);
  if (part.rope_length > 0) return rope_tables(ropes, {position, part.rope_length}, cos, sin);
  for (int64_t i = 0; i < part.rows; ++i, ++position)
    rope_tables(ropes, {position, position + 1}, cos.rows_from(i, 1), sin.rows_from(i, 1));
}

void Runner::copy_blocks(std::span<const BlockCopy> copies, bool beside) {
  // Each step asks for the end of the last copies, which most do not have.
  if (leads() && (!copies.empty() || copies_are_beside_)) {
    message_.clear();
    message_.put(RankCommand::copies);
    message_.put(beside);
    message_.list(copies);
    groups_.all.tell(message_.bytes());
  }
  with_ranks([&] { move_blocks(copies, beside); });
}

void Runner::move_blocks(std::span<const BlockCopy> copies, bool beside) {
  copies_are_beside_ = beside && !copies.empty();
  if (copies.empty()) return kv_.finish_copies();
  Range range("KV block copies");
  kv_.begin_copies(copies);
  if (!beside) kv_.finish_copies();
}

void Runner::follow(std::span<const std::byte> message) {
  MessageReader reader(message);
  switch (reader.get<RankCommand>()) {
    case RankCommand::step:
      step_.read(reader);
      return with_ranks([&] { compute_step(); });
    case RankCommand::copies: {
      const bool beside = reader.get<bool>();
      std::vector<BlockCopy> copies;
      reader.list(copies);
      return with_ranks([&] { move_blocks(copies, beside); });
    }
    case RankCommand::logits: {
      const auto first = reader.get<int64_t>(), rows = reader.get<int64_t>();
      std::vector<RowMove> moves;
      reader.list(moves);
      const Tensor hidden = model_.hidden(*activations_, max_rows());
      for (const RowMove& m : moves) move_row(hidden, m.from, m.to);
      return with_ranks([&] { compute_head(hidden.rows_from(first, rows)); });
    }
    case RankCommand::row:
      return with_ranks([&] { send_row(reader.get<int64_t>()); });
    default:
      check(false, "a runner is told what it can do");
  }
}

Tensor Runner::prefill(Sequence& sequence, std::span<const int32_t> ids, std::stop_token stop) {
  int64_t length = std::ssize(ids);
  Tensor last;
  for (int64_t at = 0; at < length; at += max_rows()) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted after {} prompt tokens", at);
    int64_t rows = std::min(max_rows(), length - at);
    Tensor hidden =
        step(sequence, ids.subspan(static_cast<size_t>(at), static_cast<size_t>(rows)), length);
    last = hidden.rows_from(rows - 1, 1);
  }
  return last;
}

void Runner::move_row(Tensor hidden, int64_t from, int64_t to) {
  if (leads()) moves_.push_back({from, to});
  stream_->copy(hidden.rows_from(to, 1).data, hidden.rows_from(from, 1).data,
                static_cast<uint64_t>(hidden.cols) * sizeof(float));
}

// The kernels' name is part of the cache key: other kernels round differently.
PromptCache Runner::prompt_cache(std::filesystem::path path, const std::string& identity) {
  return {std::move(path), fmt::format("{} {}", identity, kernels_->name()), blocks_, kv_, ledger_};
}

int64_t Runner::restore(PromptCache& cache, std::span<const int32_t> prompt) {
  Sequence sequence = new_sequence(std::ssize(prompt));
  return cache.restore(prompt.first(prompt.size() - 1), sequence);
}

void Runner::save(PromptCache& cache, std::span<const int32_t> prompt) {
  Sequence sequence = new_sequence(std::ssize(prompt));
  auto known = prompt.first(prompt.size() - 1);
  std::vector<BlockCopy> copies;
  sequence.adopt(sequence.match(known), copies);
  copy_blocks(copies, false);
  cache.save(known, sequence);
}

// Returns the first row's place in step's result.
int64_t Runner::row_number(Tensor hidden) const {
  const auto row_bytes = hidden.stride * static_cast<int64_t>(sizeof(float));
  return (hidden.data - model_.hidden(*activations_, 1).data) / row_bytes;
}

void Runner::send_row(int64_t row) {
  if (!model_.stage().is_last() || groups_.tensor.rank().rank > 0) return;
  const Tensor hidden = model_.hidden(*activations_, max_rows()).rows_from(row, 1);
  send(0, bytes_of(hidden).first(static_cast<size_t>(hidden.cols) * sizeof(float)));
}

// Copies a row once the model is done.
void Runner::copy_row(Tensor hidden, int64_t row, std::span<float> to) {
  const std::span<std::byte> bytes = std::as_writable_bytes(to);
  if (!model_.stage().is_last()) {
    message_.clear();
    message_.put(RankCommand::row);
    message_.put(row_number(hidden) + row);
    groups_.all.tell(message_.bytes());
    const size_t most = device_.has_own_memory() ? kPassedBytes : bytes.size();
    for (size_t at = 0; at < bytes.size(); at += most)
      groups_.all.receive(first_of_last(), bytes.subspan(at, std::min(most, bytes.size() - at)));
    return;
  }
  std::byte* end = bytes.data();
  const std::span<std::byte> from(hidden.rows_from(row, 1).data, bytes.size());
  through_host(from, [&](std::span<std::byte> part, std::span<std::byte> on_host) {
    if (part.data() != on_host.data()) stream_->copy(on_host.data(), part.data(), part.size());
    stream_->synchronize();
    end = std::ranges::copy(on_host, end).out;
  });
}

void Runner::compute_logits(Tensor hidden) {
  Range range("logits");
  check(hidden.rows <= logits_rows_, "more logits rows than planned");
  if (leads()) {
    message_.clear();
    message_.put(RankCommand::logits);
    message_.put(row_number(hidden));
    message_.put(hidden.rows);
    message_.list<RowMove>(moves_);
    moves_.clear();
    groups_.all.tell(message_.bytes());
  }
  with_ranks([&] { compute_head(hidden); });
}

void Runner::compute_head(Tensor hidden) {
  logits_ = {logits_memory_.data(), DType::f32, hidden.rows, model_.logits_cols(),
             model_.logits_cols()};
  likeliest_ = nullptr;
  top_ = {};
  if (model_.stage().is_last()) compute_own_head(hidden);
  if (model_.stage().count() > 1 && groups_.tensor.rank().rank == 0) pass_logits();
}

void Runner::compute_own_head(Tensor hidden) {
  const int ranks = groups_.tensor.rank().size;
  if (ranks == 1) return model_.logits(context(), hidden, logits_);
  const Tensor part{logits_memory_.data() + part_of_logits(model_, logits_rows_), DType::f32,
                    hidden.rows, model_.head_cols(), part_stride(model_)};
  model_.logits(context(), hidden, part);
  std::vector<Share> shares;
  for (int r = 0; r < ranks; ++r) shares.push_back(model_.head_share(r));
  tensor_group().gather_columns(part, logits_, shares, *kernels_);
}

// The first rank of the last stage has the logits, and rank 0 receives them.
void Runner::pass_logits() {
  if (model_.stage().is_first()) return receive(first_of_last(), bytes_of(logits_));
  if (model_.stage().is_last()) send(0, bytes_of(logits_));
}

Tensor Runner::host_logits(int64_t first_row, int64_t rows) {
  Tensor wanted = logits_.rows_from(first_row, rows);
  if (device_.has_own_memory()) {
    std::byte* host = logits_host_.data() + (wanted.data - logits_memory_.data());
    stream_->copy(host, wanted.data, static_cast<uint64_t>(rows * wanted.stride) * sizeof(float));
    wanted.data = host;
  }
  stream_->synchronize();
  return wanted.columns(0, model_.spec().vocab_size);
}

TokenLogit Runner::likeliest(int64_t row) {
  if (likeliest_ == nullptr) find_likeliest();
  return likeliest_[row];
}

std::span<TokenLogit> Runner::top_logits(int64_t row) {
  if (top_.tokens == nullptr) find_top();
  const int32_t count = top_.counts[row];
  if (count > top_.most) return {};
  return {top_.tokens + row * top_.most, static_cast<size_t>(count)};
}

// Copies a result of the device to the same place of the host's memory; it is there after a wait.
template <class T>
T* Runner::bring(const T* found, int64_t count) {
  const auto* from = reinterpret_cast<const std::byte*>(found);
  std::byte* to = logits_memory_.data() + (from - logits_memory_.data());
  if (device_.has_own_memory()) {
    to = logits_host_.data() + (from - logits_memory_.data());
    stream_->copy(to, from, static_cast<uint64_t>(count) * sizeof(T));
  }
  return reinterpret_cast<T*>(to);
}

void Runner::find_likeliest() {
  auto* found = reinterpret_cast<TokenLogit*>(found_memory());
  const auto rows = static_cast<size_t>(logits_.rows);
  kernels_->likeliest(logits_.columns(0, model_.spec().vocab_size), {found, rows});
  likeliest_ = bring(found, logits_.rows);
  stream_->synchronize();
}

void Runner::find_top() {
  TopLogits found{kTopTokens, reinterpret_cast<TokenLogit*>(found_memory()) + logits_rows_};
  found.counts = reinterpret_cast<int32_t*>(found.tokens + logits_rows_ * kTopTokens);
  kernels_->top_logits(logits_.columns(0, model_.spec().vocab_size), kTop, found);
  top_ = {kTopTokens, bring(found.tokens, logits_.rows * kTopTokens),
          bring(found.counts, logits_.rows)};
  stream_->synchronize();
}

}  // namespace sluice
