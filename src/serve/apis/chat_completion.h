// The chat completions API: a conversation to what the engine takes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/chat/chat_template.h"
#include "src/serve/apis/chat_parts.h"
#include "src/serve/apis/completion.h"

namespace sluice {

// Called with the bytes that reading a request takes, before it takes them; throws where there is
// no room for them.
using ReserveMemory = std::function<void(uint64_t bytes)>;

struct Chat {
  Completion asked;
  ChatForm form = {};
};

// The conversation of a request as the model's template renders it, with its tools, documents and
// template variables. Throws Error(refused) for what is wrong with them, or with the template, and
// what `reserve` throws.
std::string render_chat(const OrderedJson& body, const std::string& where,
                        ChatTemplate& chat_template, const ReserveMemory& reserve);

// `bytes`: those of the body's text. Throws as parse_completion() and render_chat().
Chat parse_chat(const OrderedJson& body, uint64_t bytes, const std::string& where,
                const RequestContext& context, ChatTemplate& chat_template,
                const ReserveMemory& reserve);

}  // namespace sluice
