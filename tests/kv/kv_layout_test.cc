#include "src/kv/kv_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/kv/kv_areas.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

KvSpec tokens(int64_t heads, int64_t dim, int64_t window = 0) {
  return {.heads = heads, .key_dim = dim, .value_dim = dim, .window = window};
}
KvSpecs each(const std::vector<KvSpec>& layers) {
  KvSpecs specs;
  for (const KvSpec& spec : layers) specs.push_back({spec});
  return specs;
}
std::vector<int64_t> windows(const KvLayout& layout) {
  std::vector<int64_t> all;
  for (const KvGroup& g : layout.groups) all.push_back(g.window);
  return all;
}
std::vector<int64_t> sizes(const KvLayout& layout) {
  std::vector<int64_t> all;
  for (const KvGroup& g : layout.groups) all.push_back(g.block_size);
  return all;
}

KvSpecs windowed(const std::vector<int64_t>& windows) {
  KvSpecs specs;
  for (int64_t window : windows) specs.push_back({tokens(2, 8, window)});
  return specs;
}

TEST(KvLayout, ABlockHoldsAsManyLayersOfEachKind) {
  KvLayout all = kv_layout(windowed({0, 0, 0, 0, 0}), {});
  EXPECT_EQ(all.areas, 5);
  EXPECT_EQ(windows(all), std::vector<int64_t>{0});
  EXPECT_EQ(all.page_bytes(), 5u * 2 * 16 * 2 * 8 * 2);
  KvLayout mixed = kv_layout(windowed({8, 8, 8, 0, 8, 8, 8, 0}), {});
  EXPECT_EQ(mixed.areas, 2);
  EXPECT_EQ(windows(mixed), (std::vector<int64_t>{8, 8, 0, 8}));
  std::map<std::pair<size_t, int64_t>, int> used;
  for (const auto& layer : mixed.places)
    EXPECT_EQ(++used[std::pair(layer.front().group, layer.front().area)], 1);
  // Five and two: groups of two would leave an area unused, of one none.
  EXPECT_EQ(kv_layout(windowed({8, 8, 0, 8, 8, 0, 8}), {}).areas, 1);
}

TEST(KvLayout, WhoKeepsLessOfATokenHasMoreTokensInABlock) {
  // Gemma 4: full attention has fewer and wider heads.
  std::vector<KvSpec> layers(6, tokens(16, 256, 1024));
  layers[5] = tokens(4, 512);
  KvLayout gemma = kv_layout(each(layers), {});
  EXPECT_EQ(gemma.areas, 1);
  EXPECT_EQ(sizes(gemma), (std::vector<int64_t>{16, 16, 16, 16, 16, 32}));
  EXPECT_EQ(gemma.page_bytes(), 16u * 2 * 16 * 256 * 2);
  EXPECT_EQ(kv_block_bytes(gemma.caches[5][0]), kv_block_bytes(gemma.caches[0][0]));
  // Latent keys beside those of an indexer.
  const KvSpec latent{.kind = KvKind::latent, .heads = 1, .key_dim = 576, .value_dim = 512};
  const KvSpec indexer{.kind = KvKind::latent, .heads = 1, .key_dim = 128, .value_dim = 128};
  KvLayout dsa = kv_layout(KvSpecs(4, {latent, indexer}), {.block_size = 32});
  EXPECT_EQ(sizes(dsa), (std::vector<int64_t>{32, 128}));
  EXPECT_EQ(dsa.page_bytes(), 4u * 32 * 576 * 2);
  // Thirds and halves have sixths in common.
  KvLayout thirds = kv_layout(each({tokens(6, 8), tokens(2, 8), tokens(3, 8)}), {});
  EXPECT_EQ(sizes(thirds), (std::vector<int64_t>{16, 48, 32}));
}

// DeepSeek-V4: a key of each token, of every 4 (and an indexer's), of every 128.
TEST(KvLayout, BlocksHaveWholeKeysOfSeveralTokens) {
  const auto latent = [](int64_t dim, int64_t of) {
    return KvSpec{
        .kind = KvKind::latent, .heads = 1, .key_dim = dim, .value_dim = dim, .tokens = of};
  };
  const KvSpecs specs{{latent(512, 1), latent(512, 4), latent(128, 4)},
                      {latent(512, 1), latent(512, 128)}};
  for (const int64_t block_size : {8, 16, 32}) {
    const KvLayout layout = kv_layout(specs, {.block_size = block_size});
    for (const auto& caches : layout.caches) {
      for (const KvCache& cache : caches)
        EXPECT_LE(static_cast<uint64_t>(kv_block_bytes(cache)), layout.area_bytes);
    }
    for (const KvGroup& group : layout.groups) EXPECT_EQ(group.block_size % group.tokens, 0);
    EXPECT_EQ(layout.caches[1][1].block_size * 128,
              layout.groups[layout.places[1][1].group].block_size);
  }
  EXPECT_EQ(sizes(kv_layout(specs, {})), (std::vector<int64_t>{16, 64, 256, 16, 256}));
}

TEST(KvLayout, LayersThatShareHaveOnePlace) {
  KvSpec shared = tokens(2, 8);
  shared.shared_with = 0;
  KvLayout layout = kv_layout(each({tokens(2, 8), tokens(2, 8, 4), shared}), {});
  EXPECT_EQ(layout.places[2][0].group, layout.places[0][0].group);
  EXPECT_EQ(layout.places[2][0].area, layout.places[0][0].area);
  EXPECT_EQ(layout.groups.size(), 2u);
  for (size_t of : {size_t{1}, size_t{2}, size_t{7}}) {  // another's window, itself, nobody
    shared.shared_with = of;
    EXPECT_THROW(kv_layout(each({tokens(2, 8), tokens(2, 8, 4), shared}), {}), Error);
  }
}

TEST(KvLayout, StatesTakeAsManyPagesAsTheyNeed) {
  const KvSpec state{.kind = KvKind::state, .heads = 4, .key_dim = 16, .value_dim = 16};
  const KvSpec tail{.kind = KvKind::state, .heads = 8, .key_dim = 3, .value_dim = 1};
  // An area of 16 tokens has 1 KiB, a state 4 KiB.
  KvLayout layout = kv_layout({{state, tail}, {tokens(2, 8)}, {tokens(2, 8)}, {state, tail}}, {});
  EXPECT_EQ(layout.areas, 2);
  EXPECT_EQ(layout.area_bytes, 1024u);
  ASSERT_EQ(layout.groups.size(), 1u + 5);  // ten areas
  EXPECT_EQ(layout.groups[0].kind, KvKind::tokens);
  for (size_t g = 1; g < 6; ++g) EXPECT_EQ(layout.groups[g].kind, KvKind::state);
  EXPECT_EQ(layout.places[0][1].group, 3u);
  EXPECT_EQ(layout.states[0][1].first_row, 0);
  EXPECT_EQ(layout.places[3][0].group, 3u);
  EXPECT_EQ(layout.states[3][0].first_row, 2);  // the other took less than two rows
  EXPECT_EQ(state_pages(layout.states[3][0]), 3);
  // A page has all states if there is nothing else.
  KvLayout alone = kv_layout({{state, tail}, {state}}, {});
  EXPECT_EQ(alone.groups.size(), 1u);
  EXPECT_GE(alone.page_bytes(), 2 * 4096u + 96u);
  EXPECT_LE(alone.page_bytes(), 2 * 4096u + 96u + 256u);
  // A page has a row at least.
  const KvSpec wide{.kind = KvKind::state, .heads = 1, .key_dim = 3, .value_dim = 5000};
  EXPECT_GE(kv_layout({{wide}, {tokens(2, 8)}}, {}).page_bytes(), 20000u);
}

// Whatever the layers keep, and wherever they are divided: stages have equal groups, in which each
// layer lies apart, and which are no more than one rank's where stages are alike.
TEST(KvLayout, StagesHaveEqualGroups) {
  test::Random random("KV layout of stages");
  for (int round = 0; round < 300; ++round) {
    std::vector<KvSpecs> stages(static_cast<size_t>(random.between(1, 4)));
    for (KvSpecs& stage : stages) {
      for (int64_t l = random.between(1, 6); l > 0; --l) {
        std::vector<KvSpec>& layer = stage.emplace_back();
        for (int64_t s = random.between(0, 2); s > 0; --s) {
          layer.push_back(tokens(random.between(1, 2), 8, random.between(0, 1) * 50));
          if (random.between(0, 2) == 0) layer.back().kind = KvKind::state;
          if (random.between(0, 9) == 0 && stage.size() > 1 && !stage.front().empty() &&
              stage.front().front().kind != KvKind::state && layer.size() == 1) {
            layer.front() = stage.front().front();
            layer.front().shared_with = 0;
          }
        }
      }
    }
    std::vector<KvLayout> layouts;
    for (size_t s = 0; s < stages.size(); ++s) layouts.push_back(kv_layout(stages, s, {}));
    for (size_t s = 0; s < stages.size(); ++s) {
      const KvLayout& layout = layouts[s];
      EXPECT_EQ(windows(layout), windows(layouts.front()));
      EXPECT_EQ(sizes(layout), sizes(layouts.front()));
      EXPECT_TRUE(stages.size() == 1 || layout.page_bytes() > 0);
      std::set<std::pair<size_t, int64_t>> used;
      for (size_t l = 0; l < stages[s].size(); ++l) {
        for (size_t i = 0; i < stages[s][l].size(); ++i) {
          const KvSpec& spec = stages[s][l][i];
          const KvPlace& place = layout.places[l][i];
          ASSERT_LT(place.group, layout.groups.size());
          EXPECT_EQ(layout.groups[place.group].kind, layouts.front().groups[place.group].kind);
          EXPECT_EQ(layout.groups[place.group].kind, spec.kind);
          if (spec.kind == KvKind::state || spec.shared_with) continue;
          EXPECT_EQ(layout.groups[place.group].window, spec.window);
          EXPECT_LT(place.area, layout.areas);
          EXPECT_TRUE(used.insert({place.group, place.area}).second);
        }
      }
    }
  }
  const std::vector<KvSpecs> halves(2, windowed({8, 8, 0, 8}));
  const KvLayout whole = kv_layout(windowed({8, 8, 0, 8, 8, 8, 0, 8}), {});
  EXPECT_EQ(windows(kv_layout(halves, 1, {})), windows(whole));
  EXPECT_EQ(2 * kv_layout(halves, 1, {}).page_bytes(), whole.page_bytes());
}

// Whatever the layers keep: a state's rows lie apart from all others, in pages of its groups.
TEST(KvLayout, RowsOfStatesLieApart) {
  test::Random random("KV layout of states");
  for (int round = 0; round < 300; ++round) {
    KvSpecs specs;
    for (int64_t l = random.between(1, 8); l > 0; --l) {
      specs.emplace_back();
      for (int64_t s = random.between(1, 2); s > 0; --s) {
        specs.back().push_back({.kind = KvKind::state,
                                .heads = random.between(1, 4),
                                .key_dim = random.between(1, 20),
                                .value_dim = random.between(1, 90)});
      }
      if (random.between(0, 2) == 0) specs.push_back({tokens(random.between(1, 3), 6)});
    }
    const KvLayout layout = kv_layout(specs, {.block_size = 5});
    std::map<std::pair<size_t, int64_t>, int64_t> taken;  // begins of rows, and their ends
    for (size_t l = 0; l < specs.size(); ++l) {
      for (size_t s = 0; s < specs[l].size(); ++s) {
        if (specs[l][s].kind != KvKind::state) continue;
        const StateCache& state = layout.states[l][s];
        EXPECT_EQ(state.rows, specs[l][s].heads * specs[l][s].key_dim);
        for (int64_t r = 0; r < state.rows; ++r) {
          const size_t group =
              layout.places[l][s].group + static_cast<size_t>(state_page(state, r));
          ASSERT_LT(group, layout.groups.size());
          EXPECT_EQ(layout.groups[group].kind, KvKind::state);
          const int64_t begin = state_offset(state, r) * 4, end = begin + state.cols * 4;
          EXPECT_LE(end, static_cast<int64_t>(layout.page_bytes()));
          EXPECT_TRUE(taken.emplace(std::pair(group, begin), end).second);
        }
      }
    }
    std::pair<size_t, int64_t> last{0, 0};
    for (const auto& [at, end] : taken) {
      EXPECT_TRUE(at.first != last.first || last.second <= at.second);
      last = {at.first, end};
    }
  }
}

// Whatever the layers keep: no two share a byte of a page, but those that share it all.
TEST(KvLayout, LayersOfAGroupLieApartInAPage) {
  test::Random random("KV layout");
  for (int round = 0; round < 300; ++round) {
    KvSpecs specs;
    std::vector<KvSpec> kinds;
    for (int64_t k = random.between(1, 4); k > 0; --k) {
      KvSpec spec{.heads = random.between(1, 4),
                  .key_dim = 2 * random.between(1, 20),
                  .value_dim = 2 * random.between(1, 20),
                  .window = random.between(0, 1) * 50};
      if (random.between(0, 3) == 0) {
        spec.kind = KvKind::latent;
        spec.value_dim = std::min(spec.key_dim, spec.value_dim);
      }
      kinds.push_back(spec);
    }
    for (int64_t l = random.between(1, 12); l > 0; --l) {
      specs.emplace_back();
      for (int64_t s = random.between(1, 2); s > 0; --s)
        specs.back().push_back(
            kinds[static_cast<size_t>(random.between(0, std::ssize(kinds) - 1))]);
    }
    const DType dtype = random.between(0, 1) == 0 ? DType::bf16 : DType::f8_e4m3;
    KvLayout layout = kv_layout(specs, {.dtype = dtype, .block_size = 16});
    KvAreas areas(layout, 3, nullptr, {});
    std::map<size_t, std::set<std::pair<int64_t, int64_t>>> of_group;  // begin and end in a page
    for (const auto& layer : areas.layers()) {
      for (const LayerKv& kv : layer) {
        const int64_t begin = kv.cache.keys - static_cast<std::byte*>(nullptr);
        const int64_t end = begin + kv_block_bytes(kv.cache);
        EXPECT_EQ(kv.cache.block_size, layout.groups[kv.group].block_size);
        EXPECT_LE(end, static_cast<int64_t>(layout.page_bytes()));
        EXPECT_EQ(kv.cache.block_stride, static_cast<int64_t>(layout.page_bytes()));
        for (auto [b, e] : of_group[kv.group]) EXPECT_TRUE(end <= b || e <= begin);
        of_group[kv.group].insert({begin, end});
      }
    }
    EXPECT_EQ(of_group.size(), layout.groups.size());
  }
}

TEST(KvLayout, MostBlocksAreThoseOfWindowsChunksAndStates) {
  EXPECT_EQ(most_blocks({KvKind::tokens, 16, 0, 0}, 100, 8), 7);
  EXPECT_EQ(most_blocks({KvKind::tokens, 16, 32, 0}, 1000, 8), 4);
  EXPECT_EQ(most_blocks({KvKind::latent, 16, 0, 32}, 1000, 8), 4);
  EXPECT_EQ(most_blocks({KvKind::tokens, 16, 32, 0}, 1000, 8, 3), 12);
  EXPECT_EQ(most_blocks({KvKind::tokens, 16, 32, 0}, 20, 8, 3), 2);
  EXPECT_EQ(most_blocks({KvKind::state, 16, 0, 0}, 1000, 8, 3), 6);
}

}  // namespace
}  // namespace sluice
