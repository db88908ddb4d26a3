// Specs of families from fields of config.json.
#pragma once

#include <gtest/gtest.h>

#include <string>

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

}  // namespace sluice
