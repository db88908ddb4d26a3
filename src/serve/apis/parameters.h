// The parameters that the body of a request may have.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "src/base/json.h"

namespace sluice {

// OpenAI's APIs: a line of a file of completions, completions, and chat completions.
enum class Api : uint8_t { batch, completions, chat };

// Handles parameters that have no effect here. Not thread-safe.
class UnknownParameters {
 public:
  // `strict`: they are refused.
  explicit UnknownParameters(bool strict) : strict_(strict) {}
  bool strict() const { return strict_; }
  // A warning in the log, once for each name.
  void pass_over(const std::string& name);

 private:
  bool strict_;
  std::set<std::string> warned_;
};

// Error(refused) for a parameter that asks for what is not supported. null is as if it were not
// there. One that is not known to the API is passed over, or where `unknown` is null or strict,
// refused.
void check_parameters(const OrderedJson& body, const std::string& where, Api api,
                      UnknownParameters* unknown = nullptr);

}  // namespace sluice
