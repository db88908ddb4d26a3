// Shared by the components of tokenizer.json (normalizer, pre_tokenizer, ...): a "type", or a
// "Sequence" of others. Each kind of component lists the types it knows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/pattern.h"

namespace sluice {

// Adds to `target`, a list of steps mostly, what `config` describes.
template <class Target>
struct ComponentType {
  std::string_view type;
  void (*load)(const JsonFields& config, Target& target);
};

// The array under `key`; refused when there is none.
const Json& array_field(const JsonFields& fields, const char* key);

// A kind of component: its place in tokenizer.json, where a Sequence has its members, and its
// types.
template <class Target>
struct ComponentKind {
  std::string_view name;
  const char* members;
  std::span<const ComponentType<Target>> types;

  // A null config adds nothing. Throws Error(refused) for a type that is not among `types`.
  void load(const Json& config, Target& target) const {
    if (config.is_null()) return;
    const JsonFields fields(config, fmt::format("tokenizer.json: {}", name));
    const std::string type = fields.string("type");
    if (type == "Sequence") {
      for (const Json& member : array_field(fields, members)) load(member, target);
      return;
    }
    const auto known = std::ranges::find(types, type, &ComponentType<Target>::type);
    if (known == types.end())
      fail(ErrorKind::refused, "tokenizer.json: unknown {} type {}", name, type);
    known->load(fields, target);
  }
};

// "pattern": {"Regex": "..."} or {"String": "..."}.
Pattern load_pattern(const JsonFields& component);

// "Metaspace": a character in the place of spaces, one put before a text or its words.
struct Metaspace {
  enum class Prepend : uint8_t { never, first, always };
  std::string replacement;
  Prepend prepend = Prepend::always;
  bool split = true;
};
Metaspace load_metaspace(const JsonFields& component);

}  // namespace sluice
