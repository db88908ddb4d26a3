// Writes tokenizer.json. https://github.com/huggingface/tokenizers
#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "src/text/tokenizer_file.h"

namespace sluice {
namespace {

using Defaults = std::initializer_list<std::pair<const char*, Json>>;

void add_defaults(Json& object, const Defaults& defaults) {
  for (const auto& [key, value] : defaults)
    if (!object.contains(key)) object[key] = value;
}

// Fields of steps that have no defaults there.
void complete_step(Json& step) {
  if (!step.is_object()) return;
  const std::string type = step.value("type", "");
  if (type == "ByteLevel")
    add_defaults(step, {{"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}});
  for (const char* steps : {"pretokenizers", "normalizers", "decoders", "processors"})
    if (step.contains(steps))
      for (Json& inner : step[steps]) complete_step(inner);
  if (type != "TemplateProcessing" || step.contains("pair")) return;
  // The second text is as the first one, with another type.
  Json& pair = step["pair"] = step["single"];
  for (Json item : step["single"]) {
    for (auto& [kind, value] : item.items()) {
      value["type_id"] = 1;
      if (kind == "Sequence") value["id"] = "B";
    }
    pair.push_back(std::move(item));
  }
}

std::string quoted(std::string_view text) { return Json(text).dump(); }

void add_model(const TokenizerFile& file, std::string& text) {
  std::string model = file.config.at("model").dump();
  model.pop_back();  // its brace
  text += model + ",\"vocab\":{";
  for (size_t i = 0; i < file.tokens.size(); ++i)
    text += fmt::format("{}{}:{}", i > 0 ? "," : "", quoted(file.tokens[i]), file.ids[i]);
  text += "},\"merges\":[";
  for (size_t i = 0; i + 1 < file.merges.size(); i += 2)
    text += fmt::format("{}[{},{}]", i > 0 ? "," : "", quoted(file.merges[i]),
                        quoted(file.merges[i + 1]));
  text += "]}";
}

}  // namespace

std::string tokenizer_json(const TokenizerFile& file) {
  file.need_vocabulary();
  Json rest = file.config;
  rest.erase("model");
  add_defaults(rest, {{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", Json::array()},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", nullptr},
                      {"post_processor", nullptr},
                      {"decoder", nullptr}});
  for (Json& token : rest["added_tokens"])
    add_defaults(token, {{"single_word", false}, {"lstrip", false}, {"rstrip", false}});
  for (const char* step : {"normalizer", "pre_tokenizer", "post_processor", "decoder"})
    complete_step(rest[step]);
  std::string text = rest.dump();
  text.pop_back();
  text += ",\"model\":";
  add_model(file, text);
  return text + "}\n";
}

}  // namespace sluice
