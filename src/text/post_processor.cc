#include "src/text/post_processor.h"

#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/text/component.h"
#include "src/text/tokenizer_file.h"

namespace sluice {
namespace {

using PostProcessorSteps = std::vector<PostProcessor::Step>;

// Does nothing: this processor changes only offsets into the text, and we have none.
void load_byte_level(const JsonFields&, PostProcessorSteps&) {}

// A template may name one long list many times; none needs more than a few.
constexpr size_t kMaxSpecialTokens = 1024;

// The ids under special_tokens.NAME.ids.
void append_special_ids(const JsonFields& config, const std::string& name,
                        std::vector<int32_t>& ids) {
  JsonFields tokens(config.raw("special_tokens"), config.where() + ": special_tokens");
  if (!tokens.has(name.c_str())) {
    fail(ErrorKind::refused, "{}: the template's '{}' is not among special_tokens", config.where(),
         name);
  }
  JsonFields token(tokens.raw(name.c_str()), tokens.where());
  for (const Json& id : array_field(token, "ids")) {
    bool valid = id.is_number_unsigned() && id.get<uint64_t>() <= uint64_t{kMaxTokenId};
    if (!valid) {
      fail(ErrorKind::refused, "{}: the ids of '{}' must be token ids", tokens.where(), name);
    }
    ids.push_back(id.get<int32_t>());
    if (ids.size() > kMaxSpecialTokens) {
      fail(ErrorKind::refused, "{}: adds more than {} special tokens", config.where(),
           kMaxSpecialTokens);
    }
  }
}

// single: [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...]
void load_template(const JsonFields& config, PostProcessorSteps& steps) {
  SpecialTokenTemplate found;
  int sequences = 0;
  for (const Json& item : array_field(config, "single")) {
    JsonFields piece(item, config.where() + ": single");
    if (piece.has("SpecialToken")) {
      JsonFields special(piece.raw("SpecialToken"), piece.where() + ": SpecialToken");
      append_special_ids(config, special.string("id"), sequences ? found.after : found.before);
    } else {
      JsonFields sequence(piece.raw("Sequence"), piece.where() + ": Sequence");
      sequences += sequence.string("id") == "A" ? 1 : 2;
    }
  }
  if (sequences != 1) {
    fail(ErrorKind::refused, "{}: single must hold the sequence A once, and no other",
         config.where());
  }
  steps.push_back(std::move(found));
}

// ["[SEP]", 102] under `key`
int32_t load_pair(const JsonFields& config, const char* key) {
  const Json& pair = array_field(config, key);
  bool valid = pair.size() == 2 && pair[1].is_number_unsigned() &&
               pair[1].get<uint64_t>() <= uint64_t{kMaxTokenId};
  if (!valid) fail(ErrorKind::refused, "{}: {} must be a token and its id", config.where(), key);
  return pair[1].get<int32_t>();
}

void load_class_and_separator(const JsonFields& config, PostProcessorSteps& steps) {
  const int32_t before = load_pair(config, "cls"), after = load_pair(config, "sep");
  steps.push_back(SpecialTokenTemplate{.before = {before}, .after = {after}});
}

constexpr ComponentType<PostProcessorSteps> kPostProcessors[] = {
    {"ByteLevel", load_byte_level},
    {"TemplateProcessing", load_template},
    {"BertProcessing", load_class_and_separator},
    {"RobertaProcessing", load_class_and_separator},
};

constexpr ComponentKind<PostProcessorSteps> kPostProcessorKind{"post_processor", "processors",
                                                               kPostProcessors};

void apply(const SpecialTokenTemplate& around, std::vector<int32_t>& ids) {
  ids.insert(ids.begin(), around.before.begin(), around.before.end());
  ids.insert(ids.end(), around.after.begin(), around.after.end());
}

}  // namespace

PostProcessor PostProcessor::load(const Json& config) {
  PostProcessor post_processor;
  kPostProcessorKind.load(config, post_processor.steps_);
  return post_processor;
}

void PostProcessor::add_special_tokens(std::vector<int32_t>& ids) const {
  for (const Step& step : steps_) {
    std::visit([&](const auto& s) { apply(s, ids); }, step);
  }
}

}  // namespace sluice
