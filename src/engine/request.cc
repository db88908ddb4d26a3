#include "src/engine/request.h"

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/engine/sampler.h"
#include "src/grammar/token_masks.h"
#include "src/memory/buffer.h"

namespace sluice {

std::vector<int32_t> end_ids(const Request& request) {
  std::vector<int32_t> ends = request.eos_ids;
  ends.insert(ends.end(), request.sampling.stop_token_ids.begin(),
              request.sampling.stop_token_ids.end());
  return ends;
}

// A request with a grammar counts scratch even if it needs none itself. The largest of all requests
// is planned, and another request may need scratch.
uint64_t sampling_bytes(const Request& request, int64_t vocab_size) {
  bool needed = Sampler::needs_scratch(request.sampling) || wants_logprobs(request) ||
                request.sampling.grammar != nullptr;
  return needed ? Sampler::Scratch::bytes(vocab_size) + grammar_bytes(request, vocab_size) : 0;
}

uint64_t grammar_bytes(const Request& request, int64_t vocab_size) {
  const auto& grammar = request.sampling.grammar;
  if (!grammar) return 0;
  return Buffer::charged_bytes(grammar->tokens->bytes() + grammar::TokenMasks::bytes(vocab_size) +
                               grammar::Grammars::kKeptBytes);
}

void check_token_ids(std::span<const int32_t> ids, int64_t vocab_size) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      fail(ErrorKind::usage, "token id {} is not in the model's vocabulary of {}", id, vocab_size);
    }
  }
}

namespace {

// Whatever changes probabilities has no meaning where the likeliest continuation is searched.
void check_beams(const Request& request, int64_t vocab_size) {
  const BeamParams& beams = request.beams;
  if (beams.width < 0 || beams.width > kMostBeams)
    fail(ErrorKind::usage, "beam search takes 1 to {} beams", kMostBeams);
  if (beams.width == 0) return;
  if (!std::isfinite(beams.length_penalty))
    fail(ErrorKind::usage, "length_penalty must be a number");
  if (request.n > beams.width)
    fail(ErrorKind::usage, "{} beams cannot give {} continuations", beams.width, request.n);
  if (beams.width + std::ssize(request.eos_ids) + std::ssize(request.sampling.stop_token_ids) >
      vocab_size)
    fail(ErrorKind::usage, "{} beams: the model's vocabulary has {} tokens", beams.width,
         vocab_size);
  if (request.max_tokens == 0)
    fail(ErrorKind::usage, "beam search generates tokens: max_tokens must be above 0");
  SamplingParams plain;
  plain.stop_token_ids = request.sampling.stop_token_ids;
  plain.seed = request.sampling.seed;
  if (request.sampling != plain || !request.stop.empty()) {
    fail(ErrorKind::usage,
         "beam search is without sampling: temperature must be 0, and there can be no other "
         "sampling parameters, grammar, logprobs or stop strings");
  }
}

// Each is looked for in all of the text, and takes several times its bytes.
void check_stops(const std::vector<std::string>& stops, bool has_tokenizer) {
  constexpr size_t kMost = 1024, kMostBytes = 64 * KiB;
  size_t bytes = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) fail(ErrorKind::usage, "stop must not be empty");
    bytes += stop.size();
  }
  if (!stops.empty() && !has_tokenizer) fail(ErrorKind::usage, "stop needs the model's tokenizer");
  if (stops.size() > kMost || bytes > kMostBytes) {
    fail(ErrorKind::usage, "stop has {} texts of {} bytes, but {} of {} in all are the most",
         stops.size(), bytes, kMost, kMostBytes);
  }
}

}  // namespace

void check_request(const Request& request, int64_t vocab_size, bool has_tokenizer) {
  if (request.prompt.empty())
    fail(ErrorKind::usage, "the prompt is empty; give at least one token");
  check_token_ids(request.prompt, vocab_size);
  check_sampling(request.sampling, vocab_size);
  if (request.sampling.min_tokens > request.max_tokens) {
    fail(ErrorKind::usage, "min_tokens {}: more than max_tokens, which is {}",
         request.sampling.min_tokens, request.max_tokens);
  }
  check_beams(request, vocab_size);
  if (request.pooling && (request.max_tokens > 0 || request.n > 1))
    fail(ErrorKind::usage, "a prompt's vector is wanted, so that there can be no tokens behind it");
  check_stops(request.stop, has_tokenizer);
}

}  // namespace sluice
