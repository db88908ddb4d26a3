#include "src/kv/kv_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "io/reader.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

// Blocks of more tokens leave more of their last one unused, and less is found of a prefix.
constexpr int64_t kMostMultiple = 16;
constexpr uint64_t kAlignment = 64;  // of areas with states

KvGroup state_group(const KvFormat& format) {
  return {.kind = KvKind::state, .block_size = format.block_size};
}

// Layers of equal specs.
struct Kind {
  KvSpec spec;
  int64_t layers = 0;
  int64_t multiple = 1;             // of the format's tokens, in a block
  int64_t placed = 0;               // layers so far
  std::vector<size_t> groups = {};  // of the layout, filled one after another
};

bool is_state(const KvSpec& spec) { return spec.kind == KvKind::state; }

int64_t row_bytes(const KvSpec& state) {
  return state.value_dim * static_cast<int64_t>(sizeof(float));
}

// The fewest times the format's tokens that whole entries stand for.
int64_t least_multiple(const KvSpec& spec, const KvFormat& format) {
  return spec.tokens / std::gcd(spec.tokens, format.block_size);
}

// Bytes of a layer's block of `multiple` times the format's tokens.
int64_t block_bytes(const KvSpec& spec, const KvFormat& format, int64_t multiple) {
  return kv_block_bytes(kv_cache_of(spec, format, multiple * format.block_size));
}

Kind& kind_of(std::vector<Kind>& kinds, const KvSpec& spec) {
  auto found = std::ranges::find(kinds, spec, &Kind::spec);
  return found != kinds.end() ? *found : kinds.emplace_back(Kind{.spec = spec});
}

std::vector<Kind> kinds_of(const KvSpecs& specs) {
  std::vector<Kind> kinds;
  for (const std::vector<KvSpec>& layer : specs) {
    for (const KvSpec& spec : layer)
      if (!is_state(spec) && !spec.shared_with) ++kind_of(kinds, spec).layers;
  }
  return kinds;
}

// Gives each kind as many tokens as fill the area of the widest kind. Multiples whose common
// multiple is too large become powers of two.
void choose_multiples(std::vector<Kind>& kinds, const KvFormat& format) {
  int64_t widest = 0, common = 1;
  const auto least = [&](const Kind& k) { return least_multiple(k.spec, format); };
  for (const Kind& k : kinds) widest = std::max(widest, block_bytes(k.spec, format, least(k)));
  for (Kind& k : kinds) {
    const int64_t fit = widest / block_bytes(k.spec, format, least(k));
    k.multiple = std::max<int64_t>(std::min(fit, kMostMultiple / least(k)), 1) * least(k);
    common = std::lcm(common, k.multiple);
  }
  for (Kind& k : kinds)
    while (common > kMostMultiple && (k.multiple & (k.multiple - 1)) != 0) k.multiple -= least(k);
}

// Areas of a page: the largest number of those that leave the fewest unused, as few groups are few
// tables.
int64_t choose_areas(const std::vector<Kind>& kinds) {
  if (kinds.empty()) return 1;
  int64_t largest = std::ranges::min_element(kinds, {}, &Kind::layers)->layers;
  int64_t best = 1, least = INT64_MAX;
  for (int64_t size = largest; size > 0; --size) {
    int64_t areas = 0;
    for (const Kind& k : kinds) areas += ceil_div(k.layers, size) * size;
    if (areas >= least) continue;
    least = areas;
    best = size;
  }
  return best;
}

class Layout {
 public:
  Layout(const KvSpecs& specs, const KvFormat& format)
      : specs_(specs), format_(format), kinds_(kinds_of(specs)) {
    choose_multiples(kinds_, format);
    layout_.areas = choose_areas(kinds_);
    place_all();
  }
  // Some of the layers of `whole`, in groups that are equal to its groups of tokens.
  Layout(const KvSpecs& specs, const KvFormat& format, const Layout& whole)
      : specs_(specs), format_(format), kinds_(whole.kinds_) {
    const std::vector<Kind> own = kinds_of(specs);
    layout_.areas = 1;
    for (Kind& k : kinds_) {
      const auto found = std::ranges::find(own, k.spec, &Kind::spec);
      k.layers = found != own.end() ? found->layers : 0;
      k.placed = 0;
      layout_.areas = std::max(layout_.areas, ceil_div(k.layers, std::ssize(k.groups)));
    }
    for (const KvGroup& group : whole.layout_.groups)
      if (group.kind != KvKind::state) layout_.groups.push_back(group);
    place_all();
    layout_.area_bytes = std::max(layout_.area_bytes, kAlignment);  // where nothing is kept
  }
  const KvLayout& layout() const { return layout_; }
  KvLayout take() { return std::move(layout_); }

 private:
  void place_all() {
    layout_.area_bytes = area_bytes();
    for (const std::vector<KvSpec>& layer : specs_) {
      layout_.places.emplace_back(layer.size());
      layout_.caches.emplace_back(layer.size());
      layout_.states.emplace_back(layer.size());
    }
    for (bool states : {false, true}) {
      for (size_t l = 0; l < specs_.size(); ++l)
        for (size_t s = 0; s < specs_[l].size(); ++s)
          if (is_state(specs_[l][s]) == states) place(l, s);
    }
  }

  // Returns the bytes of an area: the largest block of tokens. States need aligned floats, and a
  // page with room for a row of each state. A model with states only has all of them in one area.
  uint64_t area_bytes() const {
    int64_t bytes = 0, row = 0, states = 0;
    for (const Kind& k : kinds_) bytes = std::max(bytes, block_bytes(k.spec, format_, k.multiple));
    for (const std::vector<KvSpec>& layer : specs_) {
      for (const KvSpec& spec : layer) {
        if (!is_state(spec)) continue;
        row = std::max(row, row_bytes(spec));
        states += kv_state_bytes(spec) + row_bytes(spec);  // each begins on a border of its rows
      }
    }
    if (states == 0) return static_cast<uint64_t>(bytes);
    bytes = kinds_.empty() ? states : std::max(bytes, ceil_div(row, layout_.areas));
    return round_up(static_cast<uint64_t>(bytes), kAlignment);
  }

  void place(size_t layer, size_t index) {
    const KvSpec& spec = specs_[layer][index];
    if (spec.shared_with) return share(layer, index);
    if (is_state(spec)) return place_state(layer, index);
    Kind& kind = kind_of(kinds_, spec);
    const int64_t tokens = kind.multiple * format_.block_size;
    const auto group = static_cast<size_t>(kind.placed / layout_.areas);
    if (group == kind.groups.size()) {
      kind.groups.push_back(layout_.groups.size());
      layout_.groups.push_back({spec.kind, tokens, spec.window, spec.chunk, spec.tokens});
    }
    layout_.places[layer][index] = {kind.groups[group], kind.placed++ % layout_.areas};
    layout_.caches[layer][index] = kv_cache_of(spec, format_, tokens);
  }

  void place_state(size_t layer, size_t index) {
    const KvSpec& spec = specs_[layer][index];
    StateCache& state = layout_.states[layer][index];
    state.rows = spec.heads * spec.key_dim;
    state.cols = spec.value_dim;
    state.page_bytes = static_cast<int64_t>(layout_.page_bytes());
    state.page_rows = state.page_bytes / row_bytes(spec);
    state.first_row = ceil_div(state_bytes_, row_bytes(spec));
    if (state.first_row >= state.page_rows) {
      state.first_row = 0;
      add_state_group();
    }
    layout_.places[layer][index] = {layout_.groups.size() - 1, 0};
    for (int64_t page = 1; page < state_pages(state); ++page) add_state_group();
    const int64_t last = (state.first_row + state.rows - 1) % state.page_rows;
    state_bytes_ = (last + 1) * row_bytes(spec);
  }

  void add_state_group() { layout_.groups.push_back(state_group(format_)); }

  void share(size_t layer, size_t index) {
    KvSpec own = specs_[layer][index];
    const size_t of = *std::exchange(own.shared_with, std::nullopt);
    if (of >= layer || index >= specs_[of].size() || specs_[of][index] != own)
      fail(ErrorKind::refused,
           "layer {} shares the keys and values of layer {}, which is not an earlier layer with "
           "equal ones; the model's config is damaged",
           layer, of);
    layout_.places[layer][index] = layout_.places[of][index];
    layout_.caches[layer][index] = layout_.caches[of][index];
  }

  const KvSpecs& specs_;
  const KvFormat& format_;
  std::vector<Kind> kinds_;
  int64_t state_bytes_ = INT64_MAX / 2;  // of the last state's page, taken so far; at first all
  KvLayout layout_;
};

}  // namespace

uint64_t KvLayout::slot_bytes() const { return round_up(page_bytes(), io::kDirectAlignment); }

KvLayout kv_layout(const KvSpecs& specs, const KvFormat& format) {
  return Layout(specs, format).take();
}

KvLayout kv_layout(std::span<const KvSpecs> stages, size_t own, const KvFormat& format) {
  if (stages.size() == 1) return kv_layout(stages.front(), format);
  KvSpecs all;
  for (const KvSpecs& stage : stages) {
    const size_t first = all.size();
    for (const std::vector<KvSpec>& layer : stage) {
      for (KvSpec& spec : all.emplace_back(layer))
        if (spec.shared_with) *spec.shared_with += first;
    }
  }
  const Layout whole(all, format);
  KvLayout layout = Layout(stages[own], format, whole).take();
  size_t groups = layout.groups.size();  // of the stage with the most for its states
  for (const KvSpecs& stage : stages)
    groups = std::max(groups, Layout(stage, format, whole).layout().groups.size());
  layout.groups.resize(groups, state_group(format));
  return layout;
}

// A sequence holds no more of a group with a window or a chunk than that, what a step adds, and the
// blocks in which both begin; and a state twice, where the one before a step is kept.
int64_t most_blocks(const KvGroup& group, int64_t tokens, int64_t rows, int64_t sequences) {
  if (group.kind == KvKind::state) return tokens > 0 ? 2 * sequences : 0;
  int64_t all = ceil_div(tokens, group.block_size);
  for (int64_t reach : {group.window, group.chunk}) {
    if (reach > 0)
      all = std::min(all, sequences * (ceil_div(reach - 1 + rows, group.block_size) + 1));
  }
  return all;
}

}  // namespace sluice
