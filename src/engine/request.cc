#include "src/engine/request.h"

#include <algorithm>

#include "src/base/error.h"

namespace sluice {

void check_token_ids(std::span<const int32_t> ids, int64_t vocab_size) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      fail(ErrorKind::usage, "token id {} is not in the model's vocabulary of {}", id, vocab_size);
    }
  }
}

void check_request(const Request& request, int64_t vocab_size, bool has_tokenizer) {
  if (request.prompt.empty())
    fail(ErrorKind::usage, "the prompt is empty: there is nothing to continue");
  check_token_ids(request.prompt, vocab_size);
  check_sampling(request.sampling, vocab_size);
  if (request.sampling.min_tokens > request.max_tokens) {
    fail(ErrorKind::usage, "--min-tokens {}: more than --max-tokens, which is {}",
         request.sampling.min_tokens, request.max_tokens);
  }
  if (!request.stop.empty() && !has_tokenizer)
    fail(ErrorKind::usage, "--stop needs the model's tokenizer");
  if (std::ranges::any_of(request.stop, [](const std::string& s) { return s.empty(); })) {
    fail(ErrorKind::usage, "--stop must not be empty");
  }
}

}  // namespace sluice
