// Shared by the components of tokenizer.json (normalizer, pre_tokenizer, ...): a "type", or a
// "Sequence" of others. Each kind of component lists the types it knows.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/pattern.h"

namespace sluice {

// Adds to `steps` what `config` describes.
template <class Step>
struct ComponentType {
  std::string_view type;
  void (*load)(const JsonFields& config, std::vector<Step>& steps);
};

// `kind` is "normalizer", "decoder", ...; a null config adds nothing. Throws Error(refused) for a
// type that is not among `types`.
template <class Step>
void load_component(const Json& config, std::string_view kind,
                    std::span<const ComponentType<Step>> types, std::vector<Step>& steps) {
  if (config.is_null()) return;
  JsonFields fields(config, fmt::format("tokenizer.json: {}", kind));
  std::string type = fields.string("type");
  auto known = std::ranges::find(types, type, &ComponentType<Step>::type);
  if (known == types.end()) {
    fail(ErrorKind::refused, "tokenizer.json: {} type {} is not known", kind, type);
  }
  known->load(fields, steps);
}

// The array under `key`; refused when there is none.
const Json& array_field(const JsonFields& fields, const char* key);

// "pattern": {"Regex": "..."} or {"String": "..."}.
Pattern load_pattern(const JsonFields& component);

}  // namespace sluice
