#include "src/engine/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/error.h"
#include "src/text/detokenizer.h"

namespace sluice {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::span<float> row_span(Tensor row) { return {row.row<float>(0), static_cast<size_t>(row.cols)}; }

}  // namespace

void check_token_ids(std::span<const int32_t> ids, int64_t vocab_size) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      fail(ErrorKind::usage, "token id {} is not in the model's vocabulary of {}", id, vocab_size);
    }
  }
}

uint64_t hash_logits(Tensor row) {
  return XXH3_64bits(row.data, static_cast<size_t>(row.cols) * sizeof(float));
}

void check_request(const GenerateRequest& request, int64_t vocab_size, bool has_tokenizer) {
  if (request.prompt.empty())
    fail(ErrorKind::usage, "the prompt is empty: there is nothing to continue");
  check_token_ids(request.prompt, vocab_size);
  check_sampling(request.sampling, vocab_size);
  if (!request.stop.empty() && !has_tokenizer)
    fail(ErrorKind::usage, "--stop needs the model's tokenizer");
  if (std::ranges::any_of(request.stop, [](const std::string& s) { return s.empty(); })) {
    fail(ErrorKind::usage, "--stop must not be empty");
  }
}

// Text as it becomes certain: whole characters, and nothing that might turn out to begin a stop
// string.
struct Generation::Text {
  Detokenizer detokenizer;
  std::string pending;
  bool stopped = false;

  // The part of `pending` that can be shown; all of it at the end.
  std::string take(const std::vector<std::string>& stops, bool at_end) {
    size_t cut = std::string::npos;
    for (const std::string& s : stops) cut = std::min(cut, pending.find(s));
    if (cut != std::string::npos) {
      stopped = true;
      return std::exchange(pending, {}).substr(0, cut);
    }
    size_t held = 0;
    for (const std::string& s : stops) {
      for (size_t n = std::min(s.size() - 1, pending.size()); !at_end && n > held; --n) {
        if (pending.ends_with(std::string_view(s).substr(0, n))) held = n;
      }
    }
    std::string shown = pending.substr(0, pending.size() - held);
    pending.erase(0, shown.size());
    return shown;
  }
};

Generation::Generation(Runner& runner, const Tokenizer* tokenizer, GenerateRequest request)
    : runner_(runner),
      request_(std::move(request)),
      sequence_(runner.new_sequence()),
      sampler_(request_.sampling, request_.eos_ids),
      history_(request_.prompt) {
  check_request(request_, runner.vocab_size(), tokenizer != nullptr);
  if (tokenizer != nullptr)
    text_ = std::make_unique<Text>(Text{Detokenizer(*tokenizer, true), {}, false});
}

Generation::~Generation() = default;

std::optional<std::string> Generation::next(std::stop_token stop) {
  if (finished_) return std::nullopt;
  if (stop.stop_requested())
    fail(ErrorKind::runtime, "interrupted after {} tokens", result_.ids.size());
  if (std::ssize(result_.ids) >= request_.max_tokens) return end("length");
  int32_t id = next_id(stop);
  result_.ids.push_back(id);
  if (ends_sequence(id)) return end("stop");
  if (!text_) return std::string();
  text_->pending += text_->detokenizer.add(id);
  std::string shown = text_->take(request_.stop, false);
  result_.text += shown;
  if (text_->stopped) {
    finished_ = true;
    result_.finish_reason = "stop";
  }
  return shown;
}

int32_t Generation::next_id(std::stop_token stop) {
  auto start = std::chrono::steady_clock::now();
  bool first = result_.ids.empty();
  if (first) {
    Tensor hidden = runner_.prefill(sequence_, request_.prompt, stop);
    sample(runner_.logits(hidden));
  } else if (sampled_.empty()) {
    decode_step(stop);
  }
  Sampled next = std::move(sampled_.front());
  sampled_.pop_front();
  result_.logits_hash = next.logits_hash;
  if (next.logprobs) result_.logprobs.push_back(*std::move(next.logprobs));
  (first ? result_.prefill_seconds : result_.decode_seconds) += seconds_since(start);
  return next.id;
}

// The sampler works in the row itself, so that what is told of the model's logits comes first.
void Generation::sample(Tensor logits) {
  std::span<float> row = row_span(logits);
  Sampled sampled{.id = 0, .logits_hash = hash_logits(logits), .logprobs = {}};
  const std::optional<int64_t>& top = request_.sampling.logprobs;
  if (top) raw_logits_.assign(row.begin(), row.end());
  sampled.id = sampler_.sample(row, {.ids = history_, .prompt_size = request_.prompt.size()});
  if (top) sampled.logprobs = token_logprobs(raw_logits_, sampled.id, *top);
  history_.push_back(sampled.id);
  sampled_.push_back(std::move(sampled));
}

bool Generation::ends_sequence(int32_t id) const {
  auto holds = [&](const std::vector<int32_t>& ids) {
    return std::ranges::find(ids, id) != ids.end();
  };
  return holds(request_.eos_ids) || holds(request_.sampling.stop_token_ids);
}

// The source whose guesses are to be verified now, if any has some.
Generation::Source* Generation::guess(const std::stop_token& stop) {
  int64_t left = request_.max_tokens - std::ssize(result_.ids) - 1;
  int64_t most = std::min({left, runner_.max_logits_rows() - 1, runner_.max_rows() - 1});
  auto ask = [&](Source& source, auto&& make) {
    auto start = std::chrono::steady_clock::now();
    source.guesses = make(source.length.choose(most, cost_));
    source.seconds = seconds_since(start);
    return source.guesses.empty() ? nullptr : &source;
  };
  Source* found = nullptr;
  if (request_.lookup) found = ask(lookup_, [&](int64_t n) { return lookup_guesses(history_, n); });
  if (found == nullptr && request_.draft != nullptr) {
    found = ask(draft_, [&](int64_t n) {
      return n > 0 ? request_.draft->guesses(history_, n, stop) : std::vector<int32_t>();
    });
  }
  return found;
}

// One pass: the last token and guesses at what follows it. Each row's logits give the token that
// comes after it, as long as the guesses before it were right and do not end the sequence.
void Generation::decode_step(const std::stop_token& stop) {
  std::vector<int32_t> rows{result_.ids.back()};
  Source* source = guess(stop);
  if (source != nullptr) rows.insert(rows.end(), source->guesses.begin(), source->guesses.end());
  int64_t before = sequence_.length();
  auto start = std::chrono::steady_clock::now();
  Tensor logits = runner_.logits(runner_.decode(sequence_, rows));
  cost_.learn(std::ssize(rows), seconds_since(start));
  int64_t right = 0;
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    sample(logits.rows_from(i, 1));
    int32_t id = sampled_.back().id;
    if (i + 1 == std::ssize(rows) || id != rows[static_cast<size_t>(i + 1)] || ends_sequence(id))
      break;
    ++right;
  }
  sequence_.truncate(before + right + 1);
  int64_t guessed = std::ssize(rows) - 1;
  if (source != nullptr) source->length.learn(guessed, right, source->seconds);
  ++result_.steps;
  result_.guessed += guessed;
  result_.accepted += right;
}

std::optional<std::string> Generation::end(std::string reason) {
  finished_ = true;
  result_.finish_reason = std::move(reason);
  if (!text_) return std::nullopt;
  text_->pending += text_->detokenizer.finish();
  std::string shown = text_->take(request_.stop, true);
  if (text_->stopped) result_.finish_reason = "stop";
  result_.text += shown;
  return shown;
}

Perplexity evaluate(Runner& runner, std::span<const int32_t> ids, int64_t window,
                    std::stop_token stop) {
  double sum = 0;
  Perplexity result;
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(window)) {
    auto tokens = ids.subspan(begin, std::min(static_cast<size_t>(window), ids.size() - begin));
    Sequence sequence = runner.new_sequence();
    for (size_t at = 0; at < tokens.size();) {
      if (stop.stop_requested())
        fail(ErrorKind::runtime, "interrupted after {} tokens", result.tokens);
      auto chunk = tokens.subspan(
          at, std::min(static_cast<size_t>(runner.max_logits_rows()), tokens.size() - at));
      Tensor logits = runner.logits(runner.step(sequence, chunk, std::ssize(tokens)));
      for (int64_t r = 0; r < logits.rows && at + static_cast<size_t>(r) + 1 < tokens.size(); ++r) {
        sum -= log_probability(row_span(logits.rows_from(r, 1)),
                               tokens[at + static_cast<size_t>(r) + 1]);
        ++result.tokens;
      }
      at += chunk.size();
    }
  }
  if (result.tokens == 0)
    fail(ErrorKind::usage, "the text has fewer than two tokens: there is nothing to predict");
  result.perplexity = std::exp(sum / static_cast<double>(result.tokens));
  return result;
}

}  // namespace sluice
