#include "src/plan/source_differences.h"

#include <cstdint>
#include <variant>
#include <vector>

#include "src/base/check.h"

namespace sluice {

int64_t SourceOrder::source_of(int64_t row) const {
  if (kind == Kind::same) return row;
  const int64_t head = row / block, at = row % block, begin = head * block;
  switch (kind) {
    case Kind::pairs:
      if (at >= of) return row;
      return at < of / 2 ? begin + 2 * at : begin + 2 * (at - of / 2) + 1;
    case Kind::halves:
      return at >= of ? row : begin + at % 2 * (of / 2) + at / 2;
    case Kind::tiles:
      return (head % heads_each * of + head / heads_each) * block + at;
    default:
      return head * of;
  }
}

int64_t SourceOrder::run_from(int64_t row) const {
  if (kind == Kind::same) return INT64_MAX;
  const int64_t at = row % block;
  if (kind == Kind::halves && at < of) return 1;
  if (kind != Kind::pairs) return block - at;
  return (at < of / 2 ? of / 2 : at < of ? of : block) - at;
}

int64_t SourceOrder::step_at(int64_t row) const {
  return kind == Kind::pairs && row % block < of ? 2 : 1;
}

SourceOrder SourceOrder::inverse() const {
  SourceOrder back = *this;
  if (kind == Kind::pairs) back.kind = Kind::halves;
  if (kind == Kind::halves) back.kind = Kind::pairs;
  if (kind == Kind::tiles) std::swap(back.of, back.heads_each);
  if (kind == Kind::turned) std::swap(back.block, back.of);
  return back;
}

namespace {

using Kind = SourceOrder::Kind;

class FindDifferences {
 public:
  FindDifferences(DecoderSpec& hub, DecoderSpec& source) : hub_(hub), source_(source) {}

  SourceDifferences find() {
    for (size_t l = 0; l < hub_.layers.size(); ++l) in_layer(l);
    norms();
    return std::move(found_);
  }

 private:
  void in_layer(size_t l) {
    std::vector<const MixerSpec*> all, own;
    each<MixerSpec>(hub_.kinds[hub_.layers[l]], [&](MixerSpec& spec) { all.push_back(&spec); });
    each<MixerSpec>(source_.kinds[source_.layers[l]],
                    [&](MixerSpec& spec) { own.push_back(&spec); });
    check(all.size() == own.size(), "a model and its source have the same mixers");
    for (size_t i = 0; i < all.size(); ++i) {
      std::visit(
          [&](const auto& hub) {
            const auto& of_source = std::get<std::decay_t<decltype(hub)>>(*own[i]);
            if constexpr (requires { hub.negative_rates; })
              rates(hub, of_source, static_cast<int64_t>(l));
            compare(hub, of_source, static_cast<int64_t>(l));
          },
          *all[i]);
    }
  }
  void compare(const auto&, const auto&, int64_t) {}
  // Both parameters of a linear layer, or of a norm.
  void order(const std::string& name, int64_t layer, size_t part, const SourceOrder& order) {
    for (const char* end : {".weight", ".bias"})
      found_.orders[{name_in_layer(name, layer) + end, part}] = order;
  }

  void compare(const AttentionSpec& hub, const AttentionSpec& own, int64_t layer) {
    if (!hub.rope || own.rope == hub.rope) return;
    const SourceOrder pairs{Kind::pairs, hub.head_dim, hub_.ropes[hub.angles].dim};
    for (size_t part = 0; part < (hub.shared_with ? 1 : 2); ++part)
      order(hub.qkv.name, layer, part, pairs);
    for (const NormSpec* norm : {&hub.q_norm, &hub.k_norm})
      if (norm->exists()) order(norm->name, layer, 0, pairs);
  }

  // A head's keys are [rank, elements] where they have a tensor of their own.
  void compare(const MlaSpec& hub, const MlaSpec& own, int64_t layer) {
    if (own.transposed_keys == hub.transposed_keys) return;
    found_.orders[{name_in_layer(hub.keys.source, layer) + ".keys.weight", 0}] = {
        Kind::turned, hub.nope_dim, hub.rank};
  }

  void compare(const GatedDeltaNetSpec& hub, const GatedDeltaNetSpec& own, int64_t layer) {
    if (own.tiled == hub.tiled) return;
    const int64_t keys = hub.key_heads.units(), heads = hub.heads.units(), value = hub.value_dim;
    const auto tiles = [&](int64_t block) {
      return SourceOrder{Kind::tiles, block, keys, heads / keys};
    };
    constexpr size_t kValues = 2, kGate = 3, kDecays = 4, kSteps = 5;
    order(hub.input.name, layer, kValues, tiles(value));
    order(hub.input.name, layer, kGate, tiles(value));
    order(hub.input.name, layer, kDecays, tiles(hub.decays().unit));
    order(hub.input.name, layer, kSteps, tiles(1));
    const std::string convolution = name_in_layer(hub.convolution.name, layer);
    found_.orders[{convolution + ".weight", kValues}] = tiles(value * hub.convolution.width);
    found_.orders[{convolution + ".bias", kValues}] = tiles(value);
    found_.orders[{name_in_layer(hub.log_rates, layer), 0}] = tiles(1);
    found_.orders[{name_in_layer(hub.step_bias, layer), 0}] = tiles(hub.decays().unit);
    found_.columns[name_in_layer(hub.output.name, layer) + ".weight"] = tiles(value);
  }

  void rates(const auto& hub, const auto& own, int64_t layer) {
    if (own.negative_rates != hub.negative_rates)
      found_.logs.insert(name_in_layer(hub.log_rates, layer));
  }

  void norms() {
    std::vector<const NormSpec*> all, own;
    each_norm(hub_, [&](NormSpec& norm) { all.push_back(&norm); });
    each_norm(source_, [&](NormSpec& norm) { own.push_back(&norm); });
    check(all.size() == own.size(), "a model and its source have the same norms");
    for (size_t i = 0; i < all.size(); ++i) {
      const float added = own[i]->params.weight_offset - all[i]->params.weight_offset;
      if (added == 0) continue;
      for (size_t l = 0; l < hub_.layers.size(); ++l)
        found_.added[name_in_layer(all[i]->name, static_cast<int64_t>(l)) + ".weight"] = added;
    }
  }

  DecoderSpec& hub_;
  DecoderSpec& source_;
  SourceDifferences found_;
};

}  // namespace

SourceDifferences source_differences(DecoderSpec& hub, DecoderSpec& source) {
  return FindDifferences(hub, source).find();
}

}  // namespace sluice
