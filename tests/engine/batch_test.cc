// Several sequences in one step: each gets, bit for bit, what it gets alone.
#include <gtest/gtest.h>

#include <vector>

#include "src/engine/loaded_model.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

constexpr int64_t kSequences = 9, kTokens = 40, kRows = 64;

using Row = std::vector<float>;

// A small model that is ready to run all sequences at once.
class Loaded {
 public:
  Loaded(const std::filesystem::path& model, const char* scheme)
      : planner_(options(model, scheme)) {
    loaded_.emplace(planner_,
                    planner_.place(planner_.run_shape(kSequences * 2 * kTokens, kRows, kRows)));
  }
  Runner& runner() { return loaded_->runner(); }

 private:
  static ModelOptions options(const std::filesystem::path& model, const char* scheme) {
    ModelOptions o;
    o.model = model;
    o.threads = 2;
    o.block_size = 5;
    o.quantize.scheme = *find_quant_scheme(scheme);
    return o;
  }
  Planner planner_;
  std::optional<LoadedModel> loaded_;
};

void append_logits(Runner& runner, Tensor hidden, int64_t first, int64_t rows,
                   std::vector<Row>& to) {
  Tensor logits = runner.logits(hidden.rows_from(first, rows));
  for (int64_t r = 0; r < rows; ++r)
    to.emplace_back(logits.row<float>(r), logits.row<float>(r) + logits.cols);
}

std::vector<Row> alone(Runner& runner, std::span<const int32_t> ids) {
  std::vector<Row> rows;
  Sequence sequence = runner.new_sequence();
  for (size_t i = 0; i < ids.size(); ++i)
    append_logits(runner, runner.decode(sequence, ids.subspan(i, 1)), 0, 1, rows);
  return rows;
}

// Runs steps of some of the sequences, each with some of its next tokens.
std::vector<std::vector<Row>> together(Runner& runner, const std::vector<std::vector<int32_t>>& all,
                                       test::Random& random) {
  std::vector<std::vector<Row>> rows(all.size());
  std::vector<Sequence> sequences;
  for (size_t s = 0; s < all.size(); ++s) sequences.push_back(runner.new_sequence());
  auto unfinished = [&](size_t s) { return rows[s].size() < all[s].size(); };
  size_t left = all.size();
  while (left > 0) {
    std::vector<StepPart> parts;
    std::vector<size_t> who;
    for (size_t s = 0; s < all.size(); ++s) {
      if (!unfinished(s) || random.uniform() < 0.3) continue;
      auto most = std::min<int64_t>(7, std::ssize(all[s]) - std::ssize(rows[s]));
      auto count = static_cast<size_t>(random.between(1, most));
      parts.push_back({&sequences[s], std::span(all[s]).subspan(rows[s].size(), count)});
      who.push_back(s);
    }
    if (parts.empty()) continue;
    Tensor hidden = runner.step(parts);
    int64_t first = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      append_logits(runner, hidden, first, std::ssize(parts[p].ids), rows[who[p]]);
      first += std::ssize(parts[p].ids);
      if (!unfinished(who[p])) --left;
    }
  }
  return rows;
}

TEST(Batch, EachSequenceGetsWhatItGetsAlone) {
  test::Random random("a batch");
  for (const char* scheme : {"none", "fp8_per_channel", "fp8_per_block", "fp8_dynamic",
                             "fp8_dynamic_per_block", "int8"}) {
    Json config = test::tiny_config();
    test::TempDir dir;
    test::write_checkpoint(dir.path(), config, test::tiny_tensors(config, random));
    Loaded model(dir.path(), scheme);
    std::vector<std::vector<int32_t>> ids(kSequences);
    std::vector<std::vector<Row>> expected;
    for (std::vector<int32_t>& sequence : ids) {
      for (int64_t i = random.between(1, kTokens); i > 0; --i) {
        auto last = static_cast<int32_t>(model.runner().vocab_size() - 1);
        sequence.push_back(static_cast<int32_t>(random.between(0, last)));
      }
      expected.push_back(alone(model.runner(), sequence));
    }
    EXPECT_EQ(together(model.runner(), ids, random), expected) << scheme;
  }
}

}  // namespace
}  // namespace sluice
