// Cost of masks: microseconds of the first and of later ones, for a tokenizer and a schema.
// grammar_bench TOKENIZER_DIRECTORY [SCHEMA_FILE]
#include <chrono>
#include <iostream>
#include <vector>

#include "src/grammar/grammars.h"
#include "src/grammar/state.h"
#include "src/grammar/token_masks.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

using namespace sluice;
using namespace sluice::grammar;

namespace {

constexpr const char* kSchema = R"({"type":"object","properties":{
    "name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
    "tags":{"type":"array","items":{"type":"string","maxLength":40},"maxItems":5},
    "kind":{"enum":["small","large","other"]},
    "where":{"type":"object","properties":{"x":{"type":"number"},"y":{"type":"number"}},
    "required":["x","y"]}},"required":["name","age","tags","kind","where"]})";

using Clock = std::chrono::steady_clock;

double micros(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

struct Times {
  std::vector<double> walked, found;
  void print() {
    for (auto* list : {&walked, &found}) {
      std::sort(list->begin(), list->end());
      if (list->empty()) continue;
      double sum = 0;
      for (double t : *list) sum += t;
      std::cout << (list == &walked ? "walked: " : "cached: ") << list->size() << " masks, median "
                << (*list)[list->size() / 2] << " us, mean " << sum / list->size() << " us, most "
                << list->back() << " us\n";
    }
  }
};

// Follows random tokens that the masks allow, `walks` times.
void follow(const TokenGrammar& grammar, int walks) {
  TokenMasks masks(grammar.tokens);
  test::Random random(uint64_t{1});
  Times times;
  for (int walk = 0; walk < walks; ++walk) {
    StepBudget budget(UINT64_MAX);
    State state = State::start(*grammar.grammar, budget);
    for (int step = 0; step < 200 && !state.only_ends(); ++step) {
      const int64_t before = masks.stats().walks;
      auto start = Clock::now();
      TokenBits bits = masks.find(grammar.grammar, state, step == 0);
      (masks.stats().walks > before ? times.walked : times.found).push_back(micros(start));
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < grammar.tokens->vocab_size(); ++id)
        if (bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) allowed.push_back(id);
      if (allowed.empty()) break;
      int32_t id = allowed[static_cast<size_t>(random.between(0, std::ssize(allowed) - 1))];
      // Strings end now and then.
      for (int32_t other : allowed)
        if (random.between(0, 9) == 0 && grammar.tokens->text(other, false) == "\"") id = other;
      state = state.next(*grammar.grammar, grammar.tokens->text(id, step == 0), budget);
    }
  }
  times.print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: grammar_bench TOKENIZER_DIRECTORY [SCHEMA_FILE]\n";
    return 2;
  }
  Tokenizer tokenizer = Tokenizer::load(argv[1]);
  Grammars grammars(tokenizer, tokenizer.vocab_size());
  auto start = Clock::now();
  grammars.find({SourceKind::json_object, {}}, "bench");
  std::cout << "table of " << tokenizer.vocab_size() << " tokens: " << micros(start) / 1000
            << " ms\n";
  start = Clock::now();
  const std::string schema = argc > 2 ? test::read_file(argv[2]) : kSchema;
  auto grammar = grammars.find({SourceKind::json_schema, schema}, "bench");
  std::cout << "schema: " << micros(start) << " us, " << grammar->grammar->bytes() / 1024
            << " KiB; table " << grammar->tokens->bytes() / 1024 << " KiB; masks at most "
            << TokenMasks::bytes(tokenizer.vocab_size()) / 1024 << " KiB\n";
  follow(*grammar, 1);
  follow(*grammar, 10);
  return 0;
}
