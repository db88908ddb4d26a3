#include "src/grammar/grammars.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/composition.h"
#include "src/grammar/gbnf.h"
#include "src/grammar/json_schema.h"
#include "src/grammar/regex.h"

namespace sluice::grammar {
namespace {

Expr choice(GrammarBuilder& builder, std::string_view text) {
  const Json list = parse_json(text, builder.where());
  std::vector<std::string> texts;
  bool good = list.is_array() && !list.empty();
  for (const Json& value : list) {
    good = good && value.is_string();
    if (good) texts.push_back(value.get<std::string>());
  }
  if (!good) {
    fail(ErrorKind::refused, "{}: choice must be a list of one or more strings", builder.where());
  }
  return builder.one_of(std::move(texts));
}

}  // namespace

Expr read_source(GrammarBuilder& builder, const GrammarSource& source,
                 const IsSpecial& is_special) {
  switch (source.kind) {
    case SourceKind::json_object:
      return JsonParts(builder).object();
    case SourceKind::json_schema: {
      const OrderedJson schema = parse_schema(source.text, builder.where());
      int64_t steps = 0;
      return json_schema(builder, schema, schema, steps);
    }
    case SourceKind::regex:
      return regex(builder, source.text, Alphabet::text, Match::whole);
    case SourceKind::choice:
      return choice(builder, source.text);
    case SourceKind::gbnf:
      return gbnf(builder, source.text);
    case SourceKind::composition:
      return composition(builder, parse_schema(source.text, builder.where()), is_special);
  }
  fail(ErrorKind::refused, "{}: an unknown kind of grammar", builder.where());
}

std::shared_ptr<const Grammar> compile(const GrammarSource& source, const std::string& where,
                                       const IsSpecial& is_special) {
  if (source.text.size() > kMaxTextBytes) {
    fail(ErrorKind::refused, "{}: has {} bytes, but {} is the most", where, source.text.size(),
         kMaxTextBytes);
  }
  GrammarBuilder builder(where);
  Expr root = read_source(builder, source, is_special);
  return builder.build(root);
}

std::shared_ptr<const TokenGrammar> Grammars::find(const GrammarSource& source,
                                                   const std::string& where) {
  if (auto known = find_kept(source)) return known;
  const IsSpecial is_special = [&](std::string_view token) {
    const std::optional<int32_t> id = tokenizer_.id_of(token);
    return id && tokenizer_.is_special(*id);
  };
  std::shared_ptr<const Grammar> grammar = compile(source, where, is_special);  // nobody waits
  std::lock_guard lock(mutex_);
  if (!tokens_) tokens_ = std::make_shared<const TokenTable>(tokenizer_, vocab_size_);
  auto made = std::make_shared<const TokenGrammar>(TokenGrammar{std::move(grammar), tokens_});
  const uint64_t bytes = made->grammar->bytes() + source.text.size() + sizeof(Kept);
  kept_.push_front({source, made, bytes});
  kept_bytes_ += bytes;
  for (; kept_bytes_ > kKeptBytes; kept_.pop_back()) kept_bytes_ -= kept_.back().bytes;
  return made;
}

std::shared_ptr<const TokenGrammar> Grammars::find_kept(const GrammarSource& source) {
  std::lock_guard lock(mutex_);
  auto known = std::ranges::find(kept_, source, &Kept::source);
  if (known == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, known);
  return kept_.front().grammar;
}

}  // namespace sluice::grammar
