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

Expr choice(GrammarBuilder& builder, const OrderedJson& list) {
  std::vector<std::string> texts;
  bool good = list.is_array() && !list.empty();
  for (const OrderedJson& value : list) {
    good = good && value.is_string();
    if (good) texts.push_back(value.get<std::string>());
  }
  if (!good) {
    fail(ErrorKind::refused, "{}: choice must be a list of one or more strings", builder.where());
  }
  return builder.one_of(std::move(texts));
}

std::shared_ptr<const Grammar> compile(const GrammarSource& source, size_t bytes,
                                       const std::string& where, const IsSpecial& is_special) {
  if (bytes > kMaxTextBytes)
    fail(ErrorKind::refused, "{}: has {} bytes, but {} is the most", where, bytes, kMaxTextBytes);
  GrammarBuilder builder(where);
  Expr root = read_source(builder, source, is_special);
  return builder.build(root);
}

}  // namespace

Expr read_source(GrammarBuilder& builder, const GrammarSource& source,
                 const IsSpecial& is_special) {
  OrderedJson parsed;
  auto json = [&]() -> const OrderedJson& {
    if (source.json) return *source.json;
    return parsed = parse_schema(source.text, builder.where());
  };
  switch (source.kind) {
    case SourceKind::json_object:
      return JsonParts(builder).object();
    case SourceKind::json_schema: {
      const OrderedJson& schema = json();
      int64_t steps = 0;
      return json_schema(builder, schema, schema, steps);
    }
    case SourceKind::regex:
      return regex(builder, source.text, Alphabet::text, Match::whole);
    case SourceKind::choice:
      return choice(builder, json());
    case SourceKind::gbnf:
      return gbnf(builder, source.text);
    case SourceKind::composition:
      return composition(builder, json(), is_special);
  }
  fail(ErrorKind::refused, "{}: an unknown kind of grammar", builder.where());
}

std::shared_ptr<const Grammar> compile(const GrammarSource& source, const std::string& where,
                                       const IsSpecial& is_special) {
  return compile(source, source.text.size(), where, is_special);
}

std::shared_ptr<const TokenGrammar> Grammars::find(const GrammarSource& source,
                                                   const std::string& where) {
  std::string text = source.json ? source.json->dump() : source.text;
  if (auto known = find_kept(source.kind, text)) return known;
  const IsSpecial is_special = [&](std::string_view token) {
    const std::optional<int32_t> id = tokenizer_.id_of(token);
    return id && tokenizer_.is_special(*id);
  };
  // Nobody waits meanwhile.
  std::shared_ptr<const Grammar> grammar = compile(source, text.size(), where, is_special);
  std::lock_guard lock(mutex_);
  if (!tokens_) tokens_ = std::make_shared<const TokenTable>(tokenizer_, vocab_size_);
  auto made = std::make_shared<const TokenGrammar>(TokenGrammar{std::move(grammar), tokens_});
  const uint64_t bytes = made->grammar->bytes() + text.size() + sizeof(Kept);
  kept_.push_front({source.kind, std::move(text), made, bytes});
  kept_bytes_ += bytes;
  for (; kept_bytes_ > kKeptBytes; kept_.pop_back()) kept_bytes_ -= kept_.back().bytes;
  return made;
}

std::shared_ptr<const TokenGrammar> Grammars::find_kept(SourceKind kind, std::string_view text) {
  std::lock_guard lock(mutex_);
  auto known = std::ranges::find_if(
      kept_, [&](const Kept& kept) { return kept.kind == kind && kept.text == text; });
  if (known == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, known);
  return kept_.front().grammar;
}

}  // namespace sluice::grammar
