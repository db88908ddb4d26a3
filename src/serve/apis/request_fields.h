// Fields that the bodies of all kinds of requests share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/serve/apis/completion.h"

namespace sluice {

// max_tokens of a request that ends with the longest sequence.
inline constexpr int64_t kToTheEnd = -1;

// Error(refused) for fields that are not of their types, Error(usage) for values that cannot be.
// Without prompts, and without logprobs, which APIs ask for in different ways.
Completion read_request(const OrderedFields& body, const RequestContext& context);
// When the prompts are known: Error(usage) where one cannot be continued; of an API's request that
// is too long, Refusal(400) with a code.
void check_prompts(Completion& completion, const std::string& where, const RequestContext& context);

// nullopt: is no list of token ids.
std::optional<std::vector<int32_t>> ids_of(const OrderedJson& list);
std::optional<int64_t> logprobs_of(const OrderedFields& body, const char* key);

}  // namespace sluice
