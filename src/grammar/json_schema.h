// JSON schemas (draft 2020-12, and what earlier drafts name otherwise).
//
// Every text that the grammar matches is valid by the schema. Not every valid text matches:
//   - Members of objects come in the order in which `properties` declares them, those that it does
//     not declare behind them. Without additionalProperties an object has only what is declared,
//     or anything where nothing is. Keys are written without escapes.
//   - Without `type`, the keywords say which types are meant; with none of them any value is valid.
//   - Arrays have all that prefixItems declares, up to maxItems, and more only by `items`. Of more
//     than eight values with uniqueItems those that come are in the order of the list.
//   - oneOf is anyOf. Integers have no fraction and no exponent, numbers with bounds or multipleOf
//     no exponent.
//   - json_text.h says what goes for all of JSON.
// A key that is not declared may come twice. Keywords and formats that are not known are
// annotations, which say nothing. A format that contradicts the rules beside it says nothing, too.
// What cannot be held is refused with its place and its keyword.
#pragma once

#include <optional>
#include <string_view>

#include "src/grammar/json_text.h"

namespace sluice::grammar {

// The members of an object that is a part of a schema.
inline constexpr size_t kMaxMembers = 1000;

// Parses a schema with the order of its members. Error(refused) for what is no JSON, and as
// take_schema().
OrderedJson parse_schema(std::string_view text, std::string_view where);
// The schema with its integers beyond 64 bits as doubles. Error(refused) for a number that is not
// finite, and for an object of more than kMaxMembers.
OrderedJson take_schema(OrderedJson schema, std::string_view where);

// Returns whether an object in it has more than kMaxMembers. To look so many up takes long: each is
// compared with all before it.
bool has_large_object(const OrderedJson& json);
// Returns whether no number in it is NaN or infinite.
bool is_finite(const OrderedJson& json);

// The texts of values that are valid. `root`: the document that `schema` is a part of, or itself.
// `steps` counts schemas as they are read, from what others have taken. With `end` the values are
// strings without quotes and escapes, in which `end` does not occur (empty: anything may), or null.
// Error(refused), which names place and keyword.
Expr json_schema(GrammarBuilder& builder, const OrderedJson& schema, const OrderedJson& root,
                 int64_t& steps, std::optional<std::string_view> end = {});

}  // namespace sluice::grammar
