#include "src/engine/engine.h"

#include <algorithm>
#include <cmath>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/engine/engine_state.h"

namespace sluice {
namespace {

std::span<float> row_span(Tensor row) { return {row.row<float>(0), static_cast<size_t>(row.cols)}; }

// Throws as sampling from such logits would.
TokenLogprobs finite(TokenLogprobs logprobs) {
  check_finite_logits(logprobs.token.logprob);
  return logprobs;
}

bool holds(const std::vector<int32_t>& ids, int32_t id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

EngineStats& EngineStats::operator+=(const EngineStats& s) {
  for (int64_t EngineStats::* count :
       {&EngineStats::steps, &EngineStats::rows, &EngineStats::prompt_tokens,
        &EngineStats::prefix_tokens, &EngineStats::generated_tokens, &EngineStats::drafted,
        &EngineStats::accepted, &EngineStats::preemptions, &EngineStats::slots_held,
        &EngineStats::slots_filled})
    this->*count += s.*count;
  for (int64_t BlockStats::* count :
       {&BlockStats::stored, &BlockStats::restored, &BlockStats::lost})
    blocks.*count += s.blocks.*count;
  for (double EngineStats::* seconds :
       {&EngineStats::schedule_seconds, &EngineStats::model_seconds, &EngineStats::sample_seconds})
    this->*seconds += s.*seconds;
  most_running = std::max(most_running, s.most_running);
  if (s.pass_seconds > 0) pass_seconds = s.pass_seconds;
  return *this;
}

uint64_t hash_logits(Tensor row) { return checksum64(std::as_bytes(row_span(row))); }

Engine::Engine(Runner& runner, const Tokenizer* tokenizer, int64_t max_num_seqs)
    : runner_(runner),
      tokenizer_(tokenizer),
      scheduler_(runner.blocks(), {runner.max_rows(), std::min(max_num_seqs, runner.max_rows()),
                                   runner.device().has_own_memory()}) {}

Engine::~Engine() = default;

void Engine::check_runnable(const Request& request) const {
  check_request(request, runner_.vocab_size(), tokenizer_ != nullptr);
  const int64_t tokens = std::ssize(request.prompt) + request.max_tokens;
  const int64_t width = std::max<int64_t>(request.beams.width, 1);
  if (scheduler_.fits(tokens, width)) return;
  fail(ErrorKind::no_fit,
       "{} of {} tokens do not fit the KV cache, which holds {}; raise --memory (or "
       "--kv-cache-memory, where it is given) or lower max_tokens",
       width > 1 ? fmt::format("{} beams", width) : "sequences", tokens,
       runner_.blocks().size() * runner_.blocks().block_size());
}

int64_t Engine::add(Request request) {
  const int64_t number = next_request_;
  add(number, std::move(request));
  ++next_request_;
  return number;
}

void Engine::add(int64_t number, Request request) {
  check_runnable(request);
  const int64_t prompt = std::ssize(request.prompt);
  take_sampling_memory(request);
  OutputId id{number, 0};
  auto active = std::make_unique<Active>(id, std::move(request), runner_.new_sequence(prompt),
                                         tokenizer_, scratch_);
  if (active->request.beams.width > 0) begin_beams(*active);
  scheduler_.add(*active);
  active_.emplace(id, std::move(active));
  stats_.prompt_tokens += prompt;
}

void Engine::take_sampling_memory(const Request& request) {
  const int64_t vocab = runner_.vocab_size();
  if (!scratch_ && sampling_bytes(request, vocab) > 0) scratch_ = SamplingMemory::take(runner_);
  const auto& grammar = request.sampling.grammar;
  if (!grammar) return;
  if (!grammars_) grammars_ = std::make_unique<GrammarMemory>(runner_.ledger(), request, vocab);
  check(&grammars_->masks.table() == grammar->tokens.get(), "grammars of several vocabularies");
}

void Engine::cancel(int64_t request) {
  std::erase_if(active_, [&](auto& entry) {
    if (entry.first.request != request) return false;
    scheduler_.remove(*entry.second);
    return true;
  });
  beams_.erase(request);
  std::erase_if(finished_, [&](const auto& entry) { return entry.first.request == request; });
}

RequestResult Engine::take(OutputId id) {
  auto found = finished_.find(id);
  check(found != finished_.end(), "a result is taken that is not there");
  RequestResult result = std::move(found->second);
  finished_.erase(found);
  return result;
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  if (std::vector<double> passes = few_rows_; !passes.empty()) {
    auto middle = passes.begin() + std::ssize(passes) / 2;
    std::ranges::nth_element(passes, middle);
    stats.pass_seconds = *middle;
  }
  stats.preemptions = scheduler_.preemptions();
  stats.prefix_tokens = scheduler_.prefix_tokens();
  stats.blocks = runner_.blocks().stats();
  return stats;
}

std::vector<Output> Engine::step(std::stop_token stop) {
  if (stop.stop_requested())
    fail(ErrorKind::runtime, "interrupted after {} tokens", stats_.generated_tokens);
  if (idle()) return {};
  pass_.clear();
  if (runner_.keys_end()) renew_keys();
  draft(stop);
  auto start = Clock::now();
  const std::vector<ScheduledJob>& step = scheduler_.schedule();
  check(!step.empty(), "a step without requests");
  runner_.copy_blocks(scheduler_.copies(), scheduler_.copies_beside());
  bool prompts = std::ranges::any_of(
      step, [](const ScheduledJob& s) { return s.job->sequence.length() < s.job->prompt_tokens; });
  int64_t rows_before = stats_.rows;
  for (const ScheduledJob& s : step) pass_.push_back(static_cast<Active&>(*s.job).id.request);
  auto scheduled = Clock::now();
  Tensor hidden = run_model(step);
  auto computed = Clock::now();
  std::vector<Output> outputs;
  sample_all(hidden, step, outputs);
  pass_.clear();
  // After sampling, because a CUDA device has finished only now, and draft tokens need logits.
  if (!prompts) learn_cost(stats_.rows - rows_before, seconds_between(scheduled, Clock::now()));
  for (const ScheduledJob& s : step) settle(s, outputs);
  std::erase_if(outputs, [](const Output& out) { return out.ids.empty() && !out.finished; });
  advance_all_beams(outputs);
  ++stats_.steps;
  stats_.most_running = std::max(stats_.most_running, std::ssize(step));
  stats_.schedule_seconds += seconds_between(start, scheduled);
  stats_.model_seconds += seconds_between(scheduled, computed);
  stats_.sample_seconds += seconds_between(computed, Clock::now());
  return outputs;
}

// A few rows take as long as one: what gives the weights is the limit.
void Engine::learn_cost(int64_t rows, double seconds) {
  constexpr int64_t kFewRows = 4;
  constexpr size_t kKept = 64;
  cost_.learn(rows, seconds);
  if (rows > kFewRows) return;
  if (few_rows_.size() < kKept) few_rows_.push_back(seconds);
  few_rows_[static_cast<size_t>(few_rows_passes_++) % kKept] = seconds;
}

// Sequences that have outgrown the angles of their keys are computed again, as transformers does.
void Engine::renew_keys() {
  const int64_t last = *runner_.keys_end();
  for (auto& [id, a] : active_) {
    if (a->first_length > last || std::ssize(a->ids) <= last) continue;
    a->first_length = std::ssize(a->ids);
    runner_.begin_again(a->sequence, a->first_length);
    scheduler_.wait_again(*a);
  }
}

// Proposes tokens for the sequences that generate; together as many as there are rows of logits
// for.
void Engine::draft(const std::stop_token& stop) {
  int64_t running = std::max<int64_t>(scheduler_.running(), 1);
  int64_t rows = std::min(kSpeculativeRows, runner_.max_logits_rows() / running);
  for (auto& [id, active] : active_) {
    Active& a = *active;
    a.draft_ids.clear();
    a.drafted_by = nullptr;
    if (a.result.ids.empty() || a.sequence.length() + 1 != std::ssize(a.ids)) continue;
    int64_t left = a.request.max_tokens - std::ssize(a.result.ids) - 1;
    if (const auto last = runner_.keys_end(); last && a.first_length <= *last)
      left = std::min(left, *last - std::ssize(a.ids));  // longer sequences have other keys
    a.draft_ids = propose_for(a, std::min(left, rows - 1), stop);
    if (a.constraint) a.draft_ids.resize(a.constraint->allowed(a.draft_ids));
  }
}

std::vector<int32_t> Engine::propose_for(Active& a, int64_t most, const std::stop_token& stop) {
  std::vector<int32_t> found;
  int64_t sequences = std::max<int64_t>(scheduler_.running(), 1);
  auto ask = [&](Source& source, auto&& make) {
    auto start = Clock::now();
    found = make(source.length.choose(most, cost_, sequences));
    source.seconds = seconds_between(start, Clock::now());
    if (!found.empty()) a.drafted_by = &source;
  };
  if (a.request.lookup) ask(a.lookup, [&](int64_t n) { return lookup_draft(a.ids, n); });
  if (found.empty() && a.request.draft != nullptr) {
    ask(a.draft, [&](int64_t n) {
      return n > 0 ? a.request.draft->propose(a.ids, n, stop) : std::vector<int32_t>();
    });
  }
  return found;
}

Tensor Engine::run_model(std::span<const ScheduledJob> step) {
  std::vector<StepPart> parts;
  int64_t rows = 0;
  for (const ScheduledJob& s : step) {
    Active& a = static_cast<Active&>(*s.job);
    if (!a.begun) a.begun = Clock::now();
    a.drafted = s.drafted;
    a.ids.insert(a.ids.end(), a.draft_ids.begin(), a.draft_ids.begin() + s.drafted);
    int64_t first = a.sequence.length();
    parts.push_back(
        {&a.sequence,
         std::span(a.ids).subspan(static_cast<size_t>(first), static_cast<size_t>(s.rows)),
         first < a.first_length ? a.first_length : 0});
    rows += s.rows;
  }
  Tensor hidden = runner_.step(parts);
  for (const ScheduledJob& s : step)
    s.job->ids.resize(s.job->ids.size() - static_cast<size_t>(s.drafted));
  stats_.rows += rows;
  return hidden;
}

// Adds the rows whose logits are needed: those of the prompt whose next tokens' logprobs are
// requested; at the end of all tokens the last row and those of draft tokens.
void Engine::want_rows(Active& a, const ScheduledJob& s, std::vector<Wanted>& wanted) {
  int64_t end = a.sequence.length(), first = end - s.rows;
  if (a.request.sampling.prompt_logprobs) {
    int64_t known = std::ssize(a.result.prompt_logprobs);
    for (int64_t p = std::max(first, known); p < std::min(end, a.prompt_tokens - 1); ++p)
      wanted.push_back({&a, p - first, p});
  }
  const bool samples = a.sampled && a.request.max_tokens > 0;
  for (int64_t p = end - s.drafted - 1; samples && p < end; ++p)
    wanted.push_back({&a, p - first, p});
}

// The rows whose logits are wanted, moved together, so that the head is read as seldom as can be.
void Engine::sample_all(Tensor hidden, std::span<const ScheduledJob> step,
                        std::vector<Output>& outputs) {
  std::vector<Wanted> wanted;
  outputs.reserve(step.size());  // they are pointed at
  int64_t first = 0;
  for (const ScheduledJob& s : step) {
    Active& a = static_cast<Active&>(*s.job);
    a.right = 0;
    a.sampled = a.sequence.length() - s.drafted == std::ssize(a.ids);
    a.verifying = a.sampled;
    a.first = a.sampled && a.result.ids.empty();
    if (a.beams == nullptr) {
      a.output = &outputs.emplace_back();
      a.output->id = a.id;
    }
    if (a.request.pooling) pool(a, hidden, first, s.rows);  // before its rows are moved
    if (a.sampled && a.request.max_tokens == 0 && !a.ended) end(a, "length");
    size_t before = wanted.size();
    want_rows(a, s, wanted);
    for (size_t to = before; to < wanted.size(); ++to) {
      int64_t from = first + wanted[to].row;
      if (from == static_cast<int64_t>(to)) continue;
      runner_.move_row(hidden, from, static_cast<int64_t>(to));
    }
    first += s.rows;
  }
  for (int64_t at = 0; at < std::ssize(wanted);) {
    int64_t rows = std::min(runner_.max_logits_rows(), std::ssize(wanted) - at);
    runner_.compute_logits(hidden.rows_from(at, rows));
    for (int64_t r = 0; r < rows; ++r, ++at) use_logits(wanted[static_cast<size_t>(at)], r);
  }
}

// Rows are taken in the order of their tokens, so that the vector does not depend on the steps.
void Engine::pool(Active& a, Tensor hidden, int64_t first_row, int64_t rows) {
  const int64_t end = a.sequence.length(), first = end - rows;
  std::vector<float>& row = a.result.embedding;
  row.resize(static_cast<size_t>(hidden.cols));
  while (!a.pool->done() && a.pool->next() < end) {
    runner_.copy_row(hidden, first_row + a.pool->next() - first, row);
    a.pool->add(row);
  }
  a.limit_findable();
  if (!a.sampled) return;
  a.pool->take(row);
  for (float x : row) {
    if (std::isfinite(x)) continue;
    return end_with_error(a, "the model's vector of the prompt has values that are not finite");
  }
}

void Engine::use_logits(const Wanted& w, int64_t row) {
  Active& a = *w.active;
  int64_t next = w.position + 1;
  if (!a.result.error.empty()) return;
  try {
    if (next < a.prompt_tokens) {
      int64_t top = *a.request.sampling.prompt_logprobs;
      a.result.prompt_logprobs.push_back(finite(token_logprobs(
          row_span(runner_.logits_row(row)), a.ids[static_cast<size_t>(next)], top)));
      a.limit_findable();
    } else if (a.beams != nullptr) {
      find_beam_tokens(a, runner_.logits_row(row));
    } else if (a.verifying) {
      verify(a, row);
    }
  } catch (const SamplingError& e) {
    end_with_error(a, e.what());
  }
}

// Each row's logits give the token that comes after it, as long as the draft tokens before it were
// right and the sequence goes on.
void Engine::verify(Active& a, int64_t row) {
  int32_t id = sample(a, row);
  a.verifying = !a.ended && a.right < a.drafted && id == a.draft_ids[static_cast<size_t>(a.right)];
  if (a.verifying) ++a.right;
}

// Samples from as little of the row as the request needs; nullopt if the whole row is needed.
std::optional<int32_t> Engine::sample_part(Active& a, int64_t row) {
  const TokenHistory history{a.ids, static_cast<size_t>(a.prompt_tokens)};
  if (wants_logprobs(a.request) || a.constraint) return std::nullopt;
  if (a.sampler.takes_likeliest(history)) return Sampler::take(runner_.likeliest(row));
  if (!a.sampler.takes_top(history, Runner::kTop)) return std::nullopt;
  std::span<TokenLogit> top = runner_.top_logits(row);
  if (top.empty()) return std::nullopt;
  return a.sampler.sample_top(top);
}

// Throws SamplingError where no token can be sampled, as the request leaves none, or the logits are
// not finite.
int32_t Engine::sample(Active& a, int64_t row) {
  std::optional<int32_t> part = sample_part(a, row);
  int32_t id = part ? *part : sample_row(a, runner_.logits_row(row));
  a.ids.push_back(id);
  a.result.ids.push_back(id);
  a.output->ids.push_back(id);
  ++stats_.generated_tokens;
  auto now = Clock::now();
  if (a.result.ids.size() == 1) {
    a.first_token = now;
    a.result.queue_seconds = seconds_between(a.added, *a.begun);
    a.result.prefill_seconds = seconds_between(*a.begun, now);
  }
  a.result.decode_seconds = seconds_between(a.first_token, now);
  go_on(a, id);
  if (part && a.ended) a.result.logits_hash = hash_logits(runner_.logits_row(row));
  return id;
}

// The sampler works in the row itself, so that what is told of the model's logits comes first.
int32_t Engine::sample_row(Active& a, Tensor logits) {
  std::span<float> row = row_span(logits);
  const std::optional<int64_t>& top = a.request.sampling.logprobs;
  a.result.logits_hash = hash_logits(logits);
  if (wants_logprobs(a.request)) scratch_->raw_logits.assign(row.begin(), row.end());
  TokenHistory history{a.ids, static_cast<size_t>(a.prompt_tokens)};
  TokenMask mask;
  if (a.constraint) {
    mask = a.constraint->mask(grammars_->masks);
    history.mask = &mask;
  }
  int32_t id = a.sampler.sample(row, history);
  if (a.constraint) a.constraint->accept(id);
  if (top) {
    a.result.logprobs.push_back(finite(token_logprobs(scratch_->raw_logits, id, *top)));
    a.output->logprobs.push_back(a.result.logprobs.back());
  }
  if (a.request.rank) {
    double logprob = log_probability(scratch_->raw_logits, id);
    check_finite_logits(logprob);
    a.result.cumulative_logprob += logprob;
  }
  return id;
}

// Adds the new token's text, and decides whether the token is the last one.
void Engine::go_on(Active& a, int32_t id) {
  auto show = [&](const std::string& text) {
    a.result.text += text;
    a.output->text += text;
  };
  bool stop = holds(a.request.eos_ids, id) || holds(a.request.sampling.stop_token_ids, id);
  if (!stop && a.text) show(a.text->add(id));
  bool stopped = a.text && a.text->stopped();
  bool longest = std::ssize(a.result.ids) == a.request.max_tokens;
  const bool complete = a.constraint && a.constraint->complete();
  if (!stop && !stopped && !complete && !longest) return;
  if (a.text && !stopped) {
    show(a.text->finish());
    stopped = a.text->stopped();
  }
  if (stopped) a.result.stop = a.text->stop();
  if (stopped && a.request.include_stop) show(a.result.stop);
  end(a, stop || stopped || complete ? "stop" : "length");
}

void Engine::end(Active& a, const char* reason) {
  a.ended = true;
  a.result.finish_reason = reason;
  a.output->finished = true;
}

// Ends the continuation with an error; others go on.
void Engine::end_with_error(Active& a, const std::string& error) {
  a.result.error = error;
  if (a.beams != nullptr) {
    a.beams->error = error;
    return;
  }
  end(a, "error");
  a.output->error = error;
}

// Continuations that never began, as the prompt that they share has ended with an error.
void Engine::finish_forks_with_error(const Active& first, std::vector<Output>& outputs) {
  for (int64_t i = 1; i < first.request.n; ++i)
    finish_with_error({first.id.request, i}, first.result.error, outputs);
}

void Engine::finish_with_error(OutputId id, const std::string& error,
                               std::vector<Output>& outputs) {
  RequestResult r;
  r.finish_reason = "error";
  r.error = error;
  outputs.push_back(
      {.id = id, .ids = {}, .text = {}, .logprobs = {}, .finished = true, .error = error});
  finished_.emplace(id, std::move(r));
}

// A group with a window needs the slots of its last tokens only.
void Engine::count_slots(const Sequence& sequence) {
  const BlockManager& blocks = runner_.blocks();
  for (size_t g = 0; g < blocks.groups(); ++g) {
    if (blocks.is_state(g)) continue;
    int64_t size = blocks.block_size(g);
    stats_.slots_held += sequence.table().blocks_held(g) * size;
    stats_.slots_filled += sequence.length() - blocks.first_block(g, sequence.length()) * size;
  }
}

// Keeps what the step stored and was right.
void Engine::settle(const ScheduledJob& scheduled, std::vector<Output>& outputs) {
  Active& a = static_cast<Active&>(*scheduled.job);
  a.output = nullptr;
  a.sequence.truncate(a.sequence.length() - scheduled.drafted + a.right);
  count_slots(a.sequence);
  const int64_t length = a.sequence.length();
  const bool end_of_prompt = length == runner_.blocks().last_border(a.prompt_tokens - 1);
  a.sequence.table().remember(std::span(a.ids).first(static_cast<size_t>(length)), end_of_prompt);
  if (a.drafted_by != nullptr)
    a.drafted_by->length.learn(a.drafted, a.right, a.drafted_by->seconds);
  a.result.drafted += a.drafted;
  a.result.accepted += a.right;
  stats_.drafted += a.drafted;
  stats_.accepted += a.right;
  if (a.sampled) {
    a.result.steps += a.first ? 0 : 1;
    if (a.first && a.request.n > 1 && a.beams == nullptr && a.result.error.empty()) fork(a);
  }
  if (!a.ended) return;
  if (!a.result.error.empty() && a.result.ids.empty()) finish_forks_with_error(a, outputs);
  a.result.prefix_tokens = std::max<int64_t>(a.found, 0);
  finished_.emplace(a.id, std::move(a.result));
  forget(a);
}

void Engine::forget(Active& a) {
  scheduler_.remove(a);
  active_.erase(OutputId(a.id));
}

// The other continuations share the prompt's blocks. Each computes the prompt's last token again,
// for the logits that its first token comes from.
void Engine::fork(Active& a) {
  for (int64_t i = 1; i < a.request.n; ++i) {
    Request request = a.request;
    request.prompt.assign(a.ids.begin(), a.ids.begin() + a.prompt_tokens);
    request.n = 1;
    request.sampling.prompt_logprobs.reset();
    request.sampling.seed += static_cast<uint64_t>(i);
    add_fork(a, i, std::move(request)).sequence.truncate(a.prompt_tokens - 1);
  }
}

Engine::Active& Engine::add_fork(Active& a, int64_t index, Request request) {
  OutputId id{a.id.request, index};
  auto other =
      std::make_unique<Active>(id, std::move(request), a.sequence.fork(), tokenizer_, scratch_);
  other->added = a.added;
  other->first_length = a.first_length;
  scheduler_.add_fork(*other, a);
  auto [entry, fresh] = active_.emplace(id, std::move(other));
  check(fresh, "a sequence was forked twice");
  return *entry->second;
}

}  // namespace sluice
