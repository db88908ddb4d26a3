// A grammar of any kind, and a text that is followed through it. The parts: the kind's number, the
// source, the text.
#include "src/base/json.h"
#include "src/grammar/grammars.h"
#include "src/grammar/state.h"
#include "src/grammar/token_masks.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;
using namespace sluice::grammar;

namespace {

std::shared_ptr<const TokenTable> tokens() {
  static const auto table = [] {
    std::vector<std::string> all;
    for (int b = 0; b < 256; ++b) all.emplace_back(1, static_cast<char>(b));
    for (const char* more : {"{\"", "\": ", "\", \"", "null", "true", "abc", "  ", "10", "\n"})
      all.emplace_back(more);
    return std::make_shared<const TokenTable>(all);
  }();
  return table;
}

// Each byte is a token: it is allowed where the text can go on with it.
void check_mask(TokenBits bits, const Grammar& grammar, const State& state, uint8_t byte) {
  grammar::StepBudget budget(1'000'000);
  const bool goes_on = !state.next(grammar, byte, budget).dead();
  check(((bits[byte / 64] >> (byte % 64) & 1) != 0) == goes_on, "a mask is not what bytes are");
}

}  // namespace

FUZZ_TARGET(grammar) {
  std::string_view input = test::text_of(data, size);
  const std::string_view number = test::take_part(input);
  const std::string source(test::take_part(input));
  const auto kind =
      static_cast<SourceKind>(number.empty() ? 0 : static_cast<uint8_t>(number[0] - '0') % 6);
  return test::taken_or_refused([&] {
    const std::shared_ptr<const Grammar> grammar = compile({kind, source}, "input");
    TokenMasks masks(tokens());
    grammar::StepBudget budget(2'000'000);
    State state = State::start(*grammar, budget);
    for (char c : input.substr(0, 200)) {
      const auto byte = static_cast<uint8_t>(c);
      check_mask(masks.find(grammar, state, false), *grammar, state, byte);
      state = state.next(*grammar, byte, budget);
      if (state.dead()) return;
    }
    const bool json = kind == SourceKind::json_object || kind == SourceKind::json_schema;
    if (json && input.size() <= 200 && state.can_end())
      check(Json::accept(input), "what matches a schema is JSON");
  });
}
