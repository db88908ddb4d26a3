// Texts against grammars.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/grammar/grammars.h"
#include "src/grammar/state.h"

namespace sluice::grammar {

inline State state_after(const Grammar& grammar, std::string_view text) {
  StepBudget budget(100'000'000);
  return State::start(grammar, budget).next(grammar, text, budget);
}

inline bool matches(const Grammar& grammar, std::string_view text) {
  return state_after(grammar, text).can_end();
}

inline bool matches(SourceKind kind, std::string_view source, std::string_view text) {
  return matches(*compile({kind, std::string(source)}, "test"), text);
}

// Returns the reason for refusing a source; empty: it is taken.
inline std::string refusal(SourceKind kind, std::string_view source) {
  try {
    compile({kind, std::string(source)}, "test");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    EXPECT_TRUE(std::string_view(e.what()).starts_with("test: ")) << e.what();
    return e.what();
  }
  return {};
}

}  // namespace sluice::grammar
