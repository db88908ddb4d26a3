#include "src/cli/grammar_options.h"

#include "src/base/error.h"
#include "src/cli/chat/chat_options.h"
#include "src/cli/help.h"

namespace sluice::cli {

void add_grammar_options(CLI::App& verb, GrammarOptions& o) {
  begin_group(verb, kGenerationGroup);
  verb.add_option(
          "--json-schema", o.json_schema,
          "Generate JSON that is valid by the schema in this file, or by this schema ({...}); "
          "- for standard input")
      ->type_name("FILE");
  verb.add_option("--regex", o.regex, "Generate a text that this regular expression matches whole");
  verb.add_option(
          "--grammar", o.grammar,
          "Generate a text of the grammar in this file, in llama.cpp's notation GBNF; - for "
          "standard input")
      ->type_name("FILE");
}

std::shared_ptr<const grammar::TokenGrammar> find_grammar(const GrammarOptions& o,
                                                          const Checkpoint& checkpoint,
                                                          const std::stop_token& stop) {
  using grammar::SourceKind;
  const int given =
      int(o.json_schema.has_value()) + int(o.regex.has_value()) + int(o.grammar.has_value());
  if (given == 0) return nullptr;
  if (given > 1)
    fail(ErrorKind::usage, "a text can match one of --json-schema, --regex and --grammar only");
  if (o.regex)
    return checkpoint.grammars().find({.kind = SourceKind::regex, .text = *o.regex}, "--regex");
  const std::string option = o.json_schema ? "--json-schema" : "--grammar";
  const std::string& file = o.json_schema ? *o.json_schema : *o.grammar;
  const bool is_schema = o.json_schema && file.starts_with('{');
  return checkpoint.grammars().find(
      {.kind = o.json_schema ? SourceKind::json_schema : SourceKind::gbnf,
       .text = is_schema ? file : read_input(file, option, stop)},
      is_schema ? option : fmt::format("{} {}", option, file));
}

}  // namespace sluice::cli
