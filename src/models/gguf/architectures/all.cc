// The table of GGUF's architectures: what keys, names and values are those of the hub's config.json
// and tensors.
#include "src/models/gguf/architectures/rows.h"

namespace sluice {

const std::vector<GgufArchitecture>& gguf_architectures() {
  static const std::vector<GgufArchitecture> all = [] {
    namespace from = gguf_rows;
    std::vector<GgufArchitecture> list;
    for (auto* rows : {from::expert_decoders, from::latent_decoders, from::decoders,
                       from::state_decoders, from::gemmas})
      std::ranges::copy(rows(), std::back_inserter(list));
    return list;
  }();
  return all;
}

}  // namespace sluice
