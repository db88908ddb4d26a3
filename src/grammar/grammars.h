// Grammars by their source, for the tokens of one tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/json.h"
#include "src/grammar/builder.h"
#include "src/grammar/grammar.h"
#include "src/grammar/token_table.h"

namespace sluice::grammar {

enum class SourceKind : uint8_t {
  json_object,  // any JSON object; there is no text
  json_schema,  // the schema as JSON (json_schema.h)
  regex,        // matched from beginning to end (regex.h)
  choice,       // a JSON list of strings, one of which is the text
  gbnf,         // gbnf.h
  composition,  // of others, as JSON (composition.h)
};

struct GrammarSource {
  SourceKind kind = SourceKind::json_object;
  std::string text;
  // Instead of a text that is JSON: its value, of a schema as take_schema() gives it.
  std::optional<OrderedJson> json = {};
};

// Tells whether the tokenizer has a special token of this text; none: there are none.
using IsSpecial = std::function<bool(std::string_view)>;

// Error(refused) that begins with `where`.
std::shared_ptr<const Grammar> compile(const GrammarSource& source, const std::string& where,
                                       const IsSpecial& is_special = {});
// The texts that a source matches, as a part of a grammar.
Expr read_source(GrammarBuilder& builder, const GrammarSource& source, const IsSpecial& is_special);

// A grammar with the tokens that texts are made of. Immutable.
struct TokenGrammar {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const TokenTable> tokens;
};

// Thread-safe. Keeps the grammars that were asked for last, so that equal requests share one, and
// the masks with it.
class Grammars {
 public:
  // `tokenizer` outlives this.
  Grammars(const Tokenizer& tokenizer, int64_t vocab_size)
      : tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  // Error(refused) that begins with `where`, for a source that is none, or a tokenizer without
  // texts of tokens.
  std::shared_ptr<const TokenGrammar> find(const GrammarSource& source, const std::string& where);

  // Bytes of memory for the grammars that are kept, beside the table of tokens.
  static constexpr uint64_t kKeptBytes = uint64_t{4} << 20;

 private:
  struct Kept {
    SourceKind kind;
    std::string text;
    std::shared_ptr<const TokenGrammar> grammar;
    uint64_t bytes = 0;
  };

  std::shared_ptr<const TokenGrammar> find_kept(SourceKind kind, std::string_view text);

  const Tokenizer& tokenizer_;
  int64_t vocab_size_;
  std::mutex mutex_;
  std::shared_ptr<const TokenTable> tokens_;  // null until it is needed
  std::list<Kept> kept_;                      // the last used is the first
  uint64_t kept_bytes_ = 0;
};

}  // namespace sluice::grammar
