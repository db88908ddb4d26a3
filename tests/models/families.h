// Specs of families from fields of config.json.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/models/registry.h"

namespace sluice {

inline DecoderSpec parse_family(const std::string& architecture, const Json& fields) {
  Json config = fields;
  config["architectures"] = {architecture};
  const JsonFields json(config, "config.json");
  return find_family(json).parse(json);
}

// Returns the message with which a family refuses the fields, or "accepted".
inline std::string refusal(const std::string& architecture, const Json& fields) {
  try {
    parse_family(architecture, fields);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    return e.what();
  }
  return "accepted";
}

// Returns the gated MLP of the first kind of layers, or where none is gated, its first.
inline const MlpSpec& mlp(const DecoderSpec& spec) {
  const std::vector<MlpBranch>& all = spec.kinds.front().mlps;
  const auto gated =
      std::ranges::find_if(all, [](const MlpBranch& b) { return b.mlp.up.parts.size() > 1; });
  return (gated != all.end() ? *gated : all.front()).mlp;
}

}  // namespace sluice
