// Chat templates of a model's files, and the special tokens that these print.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/gguf.h"
#include "src/base/json.h"

namespace sluice {

struct ChatTemplateText {
  std::string name;   // "default", "tool_use", ...
  std::string where;  // the file that it is in, for messages
  std::string text;
};

struct ChatFiles {
  std::vector<ChatTemplateText> templates;                   // none: no chat model
  std::vector<std::pair<std::string, std::string>> special;  // bos_token, eos_token, ...

  const ChatTemplateText* find(std::string_view name) const;  // null: there is none
};

// chat_template.jinja counts before chat_template.json, and that before tokenizer_config.json.
// Error(refused) that names the file and the fault.
ChatFiles read_chat_files(const io::ModelDirectory& directory);
// tokenizer.chat_template, tokenizer.chat_template.NAME, tokenizer.ggml.bos_token_id, ...
ChatFiles gguf_chat_files(const io::GgufHeader& header);

}  // namespace sluice
