// The choice of positions by an indexer's scores, and attention to what is chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/kernels/attention_problem.h"

namespace sluice {
namespace {

using test::AttentionShape;
using test::Backend;
using test::Cache;
using test::Matrix;
using test::Problem;
using test::Random;

class ChoosePositions : public test::EveryTarget {};

// Small integers, whose products and sums are exact in every type: many scores are equal.
Matrix small_integers(int64_t rows, int64_t cols, Random& random) {
  Matrix m(rows, cols);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) m.at(r, c) = static_cast<float>(random.between(-2, 2));
  return m;
}

// The last `rows` tokens of one sequence, in chunks that end at `cut` and at the end.
std::vector<int32_t> choose(const Backend& backend, const Cache& keys, Matrix& q, Matrix& weights,
                            int64_t context, int64_t cut, int64_t most) {
  const int64_t rows = q.rows(), first = context - rows;
  std::vector<SequenceChunk> chunks{keys.chunk(0, cut, first)};
  if (cut < rows) chunks.push_back(keys.chunk(cut, rows - cut, first + cut));
  std::vector<int32_t> chosen(static_cast<size_t>(rows * most), -1);
  backend->choose_positions(q.tensor(), weights.tensor(), keys.view, {chunks, {}},
                            {chosen.data(), most});
  return chosen;
}

TEST_P(ChoosePositions, TakesTheLargestScoresAndOfEqualOnesTheLowestPositions) {
  Random random("ChoosePositions.TakesTheLargestScores");
  for (const DType dtype : {DType::bf16, DType::f32, DType::f8_e4m3}) {
    const int64_t context = random.between(2, random.one_of(2) ? 60 : 1200);
    const int64_t rows = random.between(1, std::min<int64_t>(context, 4));
    const int64_t heads = random.between(1, random.one_of(2) ? 5 : 52),
                  most = random.between(1, context);
    const AttentionShape shape{.key_dim = GetParam().size(2, 4) * random.between(1, 40),
                               .kv_heads = 1,
                               .group = heads,
                               .block_size = GetParam().size(1, 2) * random.between(1, 40),
                               .latent = true};
    SCOPED_TRACE(testing::Message()
                 << dtype_name(dtype) << ", " << context << " positions, " << rows << " rows, "
                 << heads << " heads of " << shape.key_dim << ", " << most << " chosen");
    Cache keys(shape, dtype, context, random, 1);  // codes of FP8 are the integers
    Matrix k = small_integers(context, shape.key_dim, random);
    Backend reference(Isa::reference, Compute::bf16, {});
    keys.store(*reference.kernels, k, k, context);
    keys.view.tokens = random.one_of(2) ? 1 : 3;  // of an entry
    const int64_t length = context * keys.view.tokens + (keys.view.tokens > 1 ? 1 : 0);
    Matrix q = small_integers(rows, heads * shape.key_dim, random);
    Matrix weights = small_integers(rows, heads, random);
    const std::vector<int32_t> expected = choose(reference, keys, q, weights, length, rows, most);
    WorkspaceNeeds needs = test::attention_needs(shape, rows, length);
    needs.chosen = most;
    for (const int threads : {1, 3}) {
      Backend backend(GetParam(), Compute::bf16, needs, threads);
      const int64_t cut = random.between(1, rows);
      EXPECT_EQ(choose(backend, keys, q, weights, length, cut, most), expected);
    }
  }
}

// Random positions of each row, the first min(most, its position + 1) of them.
std::vector<int32_t> some_positions(const Problem& p, int64_t most, Random& random) {
  std::vector<int32_t> chosen(static_cast<size_t>(p.rows * most), -1);
  for (int64_t row = 0; row < p.rows; ++row) {
    std::vector<int32_t> all(static_cast<size_t>(p.context - p.rows + row + 1));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random.engine());
    all.resize(std::min(all.size(), static_cast<size_t>(most)));
    std::ranges::sort(all);
    std::ranges::copy(all, chosen.begin() + row * most);
  }
  return chosen;
}

TEST_P(ChoosePositions, AttentionReadsWhatIsChosenAlone) {
  Random random("ChoosePositions.AttentionReadsWhatIsChosenAlone");
  for (const DType dtype : {DType::bf16, DType::f32, DType::f8_e4m3}) {
    const int64_t context = random.between(2, random.one_of(2) ? 60 : 700);
    const int64_t rows = random.between(1, std::min<int64_t>(context, 4));
    const int64_t most = random.between(1, context);
    const AttentionShape shape{
        .key_dim = 48,
        .kv_heads = 1,
        .group = random.between(1, random.one_of(2) ? 5 : GetParam().size(50, 20)),
        .block_size = 16,
        .value_dim = 32,
        .latent = true};
    SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << context << " positions, "
                                    << rows << " rows, " << most << " chosen");
    Problem problem(shape, dtype, context, rows, random);
    std::vector<int32_t> chosen = some_positions(problem, most, random);
    problem.params.chosen = {chosen.data(), most};
    for (int32_t p = 0; p < context; ++p)
      if (!std::ranges::count(chosen, p)) problem.cache.forget(p);
    test::expect_the_reference(GetParam(), problem);
  }
}

// Attention of the last rows of a sequence to a window of its tokens, and to entries of whole
// windows of others, in one softmax.
struct TwoCaches {
  TwoCaches(const AttentionShape& shape, int64_t context, int64_t of_rows, int64_t tokens,
            Random& random)
      : rows(of_rows),
        own(shape, DType::f32, context, random),
        more(shape, DType::f32, std::max<int64_t>(context / tokens, 1), random),
        q(Matrix::random(of_rows, shape.group * shape.key_dim, random)) {
    Backend reference(Isa::reference, Compute::f32, {});
    Matrix k = Matrix::random(context, shape.key_dim, random);
    own.store(*reference.kernels, k, k, context);
    const int64_t entries = context / tokens;
    Matrix summaries = Matrix::random(entries, shape.key_dim, random);
    if (entries > 0) more.store(*reference.kernels, summaries, summaries, entries);
    more.view.tokens = tokens;
    first = context - rows;
    for (int64_t h = 0; h < shape.group; ++h) sinks.push_back(random.normal(1));
  }
  Matrix attend(const Backend& backend, const ChosenPositions& chosen, int64_t window,
                int64_t cut) {
    std::vector<SequenceChunk> chunks{own.chunk(0, cut, first)}, others{more.chunk(0, cut, first)};
    if (cut < rows) {
      chunks.push_back(own.chunk(cut, rows - cut, first + cut));
      others.push_back(more.chunk(cut, rows - cut, first + cut));
    }
    const KvRows of_more{others, {}};
    const MoreKeys keys{more.view, &of_more, chosen};
    const AttentionParams params{.scale = 0.3F, .window = window, .sinks = sinks, .more = &keys};
    Matrix out(rows, q.cols());
    backend->paged_attention(q.tensor(), own.view, {chunks, {}}, params, out.tensor());
    return out;
  }

  int64_t rows, first;
  Cache own, more;
  Matrix q;
  std::vector<float> sinks;
};

TEST_P(ChoosePositions, EntriesOfWindowsAreBesideOwnKeys) {
  Random random("ChoosePositions.EntriesOfWindowsAreBesideOwnKeys");
  for (const int64_t tokens : {2, 5}) {
    const int64_t context = random.between(2, random.one_of(2) ? 30 : 1400);
    const int64_t rows = random.between(1, std::min<int64_t>(context, 4));
    const AttentionShape shape{.key_dim = 24,
                               .kv_heads = 1,
                               .group = random.between(1, GetParam().size(50, 20)),
                               .block_size = 8,
                               .latent = true};
    TwoCaches problem(shape, context, rows, tokens, random);
    const int64_t most = random.between(1, context);
    std::vector<int32_t> chosen(static_cast<size_t>(rows * most), 0);  // of each row the last
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t entries = (problem.first + r + 1) / tokens, count = std::min(entries, most);
      const auto first = static_cast<int32_t>(entries - count);
      std::iota(chosen.begin() + r * most, chosen.begin() + r * most + count, first);
    }
    WorkspaceNeeds needs = test::attention_needs(shape, rows, context);
    needs.more_keys = true;
    needs.groups = 2;
    Backend reference(Isa::reference, Compute::f32, {});
    for (const ChosenPositions& of : {ChosenPositions{}, ChosenPositions{chosen.data(), most}}) {
      const int64_t window = random.between(1, context);
      const Matrix expected = problem.attend(reference, of, window, rows);
      for (const int threads : {1, 3}) {
        Backend backend(GetParam(), Compute::f32, needs, threads);
        const Matrix out = problem.attend(backend, of, window, random.between(1, rows));
        test::expect_near(out, expected, 5e-5F, 5e-5F);
      }
    }
  }
}

TEST_P(ChoosePositions, AttentionToAllPositionsHasTheBitsOfAnyOther) {
  Random random("ChoosePositions.AttentionToAllPositions");
  const int64_t context = random.between(500, 1100);
  const AttentionShape shape{
      .key_dim = 24, .kv_heads = 1, .group = 5, .block_size = 16, .latent = true};
  Problem problem(shape, DType::bf16, context, GetParam().size(7, 2), random);
  Backend backend(GetParam(), Compute::bf16, problem.needs(), 2);
  const Matrix whole = problem.attend(backend);
  std::vector<int32_t> all = some_positions(problem, context, random);
  problem.params.chosen = {all.data(), context};
  EXPECT_TRUE(same_bits(problem.attend(backend), whole));
}

SLUICE_OVER_EVERY_TARGET(ChoosePositions);

}  // namespace
}  // namespace sluice
