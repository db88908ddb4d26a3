#include "src/models/chat_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/text/conversion.h"
#include "src/text/tokenizer_file.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemplateFile = "chat_template.jinja";
constexpr std::string_view kTemplateJson = "chat_template.json";
constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
constexpr std::string_view kSpecialTokens = "special_tokens_map.json";
constexpr std::string_view kSuffix = "_token";

// A text, or a list of {name, template}.
void take_templates(const Json& config, std::string_view where, ChatFiles& files) {
  auto at = config.find("chat_template");
  if (at == config.end() || at->is_null() || !files.templates.empty()) return;
  if (at->is_string()) {
    files.templates.push_back({"default", std::string(where), at->get<std::string>()});
    return;
  }
  if (!at->is_array())
    fail(ErrorKind::refused, "{}: chat_template must be a string or a list", where);
  for (const Json& named : *at) {
    const JsonFields fields(named, fmt::format("{}: chat_template", where));
    files.templates.push_back(
        {fields.string("name"), std::string(where), fields.string("template")});
  }
}

// Takes the special tokens that files name as NAME_token, except those that are already there.
void take_special(const Json& config, ChatFiles& files) {
  for (const auto& [name, value] : config.items()) {
    const bool known =
        std::ranges::any_of(files.special, [&](const auto& token) { return token.first == name; });
    const std::optional<std::string> token = token_content(value);
    if (token && name.ends_with(kSuffix) && !known) files.special.emplace_back(name, *token);
  }
}

}  // namespace

const ChatTemplateText* ChatFiles::find(std::string_view name) const {
  auto found = std::ranges::find(templates, name, &ChatTemplateText::name);
  return found == templates.end() ? nullptr : &*found;
}

ChatFiles read_chat_files(const io::ModelDirectory& directory) {
  ChatFiles files;
  if (std::optional<std::string> text = read_text_file(directory, kTemplateFile))
    files.templates.push_back({"default", std::string(kTemplateFile), *std::move(text)});
  take_templates(read_json_file(directory, kTemplateJson), kTemplateJson, files);
  const Json config = read_json_file(directory, kTokenizerConfig);
  take_templates(config, kTokenizerConfig, files);
  take_special(config, files);
  take_special(read_json_file(directory, kSpecialTokens), files);
  return files;
}

ChatFiles gguf_chat_files(const io::GgufHeader& header) {
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  constexpr std::string_view kGgml = "tokenizer.ggml.";
  ChatFiles files;
  const std::string where = io::printable(header.file.path.filename().string());
  std::map<int64_t, std::vector<std::string>> wanted;  // names of the tokens with these ids
  for (const auto& [key, value] : header.values.items()) {
    if (key.starts_with(kTemplate) && value.is_string()) {
      const std::string name = key == kTemplate ? "default" : key.substr(kTemplate.size() + 1);
      files.templates.push_back({name, where, value.get<std::string>()});
    }
    if (key.starts_with(kGgml) && key.ends_with("_token_id") && value.is_number_integer()) {
      const size_t length = key.size() - kGgml.size() - std::string_view("_id").size();
      wanted[value.get<int64_t>()].push_back(key.substr(kGgml.size(), length));
    }
  }
  if (files.templates.empty() || !header.arrays.contains("tokenizer.ggml.tokens")) return files;
  int64_t id = 0;
  each_gguf_string(header, "tokenizer.ggml.tokens", [&](std::string_view token) {
    if (auto names = wanted.find(id++); names != wanted.end()) {
      for (const std::string& name : names->second)
        files.special.emplace_back(name == "unknown_token"     ? "unk_token"
                                   : name == "padding_token"   ? "pad_token"
                                   : name == "seperator_token" ? "sep_token"
                                                               : name,
                                   to_valid_utf8(token));
    }
  });
  return files;
}

}  // namespace sluice
