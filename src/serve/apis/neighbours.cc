#include "src/serve/apis/neighbours.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/serve/apis/ordered_json.h"

namespace sluice {
namespace {

struct Alias {
  std::string_view theirs;
  const char* ours;
};

constexpr Alias kAliases[] = {
    // llama.cpp's.
    {"grammar", "guided_grammar"},
    {"json_schema", "guided_json"},
    {"n_predict", "max_tokens"},
    {"repeat_penalty", "repetition_penalty"},
    // Ollama's.
    {"num_predict", "max_tokens"},
    // SGLang's.
    {"ebnf", "guided_grammar"},
    {"regex", "guided_regex"},
    {"no_stop_trim", "include_stop_str_in_output"},
    // text-generation-webui's, KoboldCpp's and TGI's, as front ends send them.
    {"add_bos_token", "add_special_tokens"},
    {"ban_eos_token", "ignore_eos"},
    {"grammar_string", "guided_grammar"},
    {"max_new_tokens", "max_tokens"},
    {"rep_pen", "repetition_penalty"},
    {"stop_sequence", "stop"},
    {"stop_sequences", "stop"},
    {"stopping_strings", "stop"},
    {"typical", "typical_p"},
};

// Members of Ollama's `options` that have the same name here.
constexpr std::string_view kOptions[] = {"frequency_penalty",
                                         "min_p",
                                         "presence_penalty",
                                         "seed",
                                         "stop",
                                         "temperature",
                                         "top_k",
                                         "top_p",
                                         "typical_p"};

// Parameters that say how much a model is to think.
constexpr std::string_view kThoughts[] = {"enable_thinking", "reasoning", "reasoning_budget",
                                          "think", "thinking"};

bool asks_nothing(const OrderedJson& value) {
  return value.is_null() || value == OrderedJson("") || (value.is_structured() && value.empty());
}

class Translation {
 public:
  explicit Translation(OrderedJson& body) : body_(body) {}

  void run(bool chat) {
    take_options();
    for (const Alias& alias : kAliases) move(std::string(alias.theirs), alias.ours);
    take_format();
    if (chat) take_thoughts();
  }

 private:
  void set(const char* ours, OrderedJson value) {
    if (is_null(body_, ours)) body_[ours] = std::move(value);
  }

  OrderedJson take(const std::string& name) {
    auto found = body_.find(name);
    if (found == body_.end()) return {};
    OrderedJson value = std::move(*found);
    body_.erase(found);
    return value;
  }

  void move(const std::string& theirs, const char* ours) {
    OrderedJson value = take(theirs);
    if (!asks_nothing(value)) set(ours, std::move(value));
  }

  void take_options() {
    const OrderedJson options = take("options");
    if (!options.is_object()) return;
    for (const auto& [key, value] : options.items()) {
      const auto* alias = std::ranges::find(kAliases, key, &Alias::theirs);
      const bool same = std::ranges::find(kOptions, key) != std::end(kOptions);
      if (asks_nothing(value)) continue;
      if (same) set(key.c_str(), value);
      if (alias != std::end(kAliases)) set(alias->ours, value);
    }
  }

  // Ollama's: "json", or a schema.
  void take_format() {
    OrderedJson format = take("format");
    if (format == OrderedJson("json")) {
      set("response_format", {{"type", "json_object"}});
    } else if (format.is_object() && !format.empty()) {
      set("guided_json", std::move(format));
    }
  }

  void think(bool thinks) {
    OrderedJson& kwargs = body_["chat_template_kwargs"];
    if (kwargs.is_null()) kwargs = OrderedJson::object();
    if (!kwargs.is_object()) return;
    // Templates have one switch or the other.
    for (const char* name : {"enable_thinking", "thinking"})
      if (!kwargs.contains(name)) kwargs[name] = thinks;
  }

  // A switch, or how much.
  void take_effort(const OrderedJson& value) {
    if (value.is_boolean()) think(value.get<bool>());
    if (value.is_string() && value != OrderedJson("")) set("reasoning_effort", value);
  }

  void take_thoughts() {
    take_effort(take("enable_thinking"));
    take_effort(take("think"));
    const OrderedJson budget = take("reasoning_budget");
    if (budget == OrderedJson(0)) think(false);
    const OrderedJson thinking = take("thinking");  // Anthropic's, and of hosts of GLM and DeepSeek
    if (!is_null(thinking, "type")) think(thinking.at("type") != OrderedJson("disabled"));
    take_effort(thinking);
    const OrderedJson reasoning = take("reasoning");  // OpenRouter's
    if (!reasoning.is_object()) return;
    if (!is_null(reasoning, "effort")) take_effort(reasoning.at("effort"));
    if (!is_null(reasoning, "enabled")) take_effort(reasoning.at("enabled"));
  }

  OrderedJson& body_;
};

bool is_theirs(std::string_view key, bool chat) {
  return key == "options" || key == "format" ||
         std::ranges::find(kAliases, key, &Alias::theirs) != std::end(kAliases) ||
         (chat && std::ranges::find(kThoughts, key) != std::end(kThoughts));
}

}  // namespace

void put_in_our_names(OrderedJson& body, const std::string& where, bool chat) {
  if (!body.is_object()) return;
  const bool theirs = std::ranges::any_of(
      body.items(), [&](const auto& member) { return is_theirs(member.key(), chat); });
  if (!theirs) return;
  refuse_large_objects(body, where);
  Translation(body).run(chat);
}

}  // namespace sluice
