// Commands to the program within a conversation.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/base/units.h"
#include "src/cli/chat/chat.h"
#include "src/cli/input.h"
#include "src/cli/near_miss.h"
#include "src/cli/output.h"
#include "src/cli/usage_error.h"

namespace sluice::cli {

struct Chat::Command {
  std::string_view name;
  std::string_view argument;
  std::string_view help;
  // Another name; empty: none.
  std::string_view alias;
  bool (Chat::*run)(const std::string& rest);
};

namespace {

// The options of /set, and their values where they have one.
std::string settings_text(const CLI::App& options) {
  std::string text;
  for (const CLI::Option* option : options.get_options()) {
    std::string name = option->get_name().substr(2);
    std::ranges::replace(name, '-', '_');
    if (name != "help") text += fmt::format("  {:<22} {}\n", name, option->get_default_str());
  }
  return text;
}

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

bool Chat::command(std::string_view line) {
  static constexpr std::array<Command, 12> kCommands{
      {{"/help", "", "shows this", "/?", &Chat::help},
       {"/system", "TEXT", "sets the system message; without TEXT, removes it", "", &Chat::system},
       {"/regenerate", "", "answers the last message again", "", &Chat::regenerate},
       {"/undo", "", "removes the last message and its answer", "", &Chat::undo},
       {"/drop", "[N]", "removes the oldest turn, or N of them", "", &Chat::drop},
       {"/reset", "", "begins a new conversation", "/clear", &Chat::reset},
       {"/set", "[NAME VALUE]", "sets temperature, top_p, max_tokens, seed, ...; alone, shows them",
        "", &Chat::set},
       {"/save", "FILE", "writes the messages as JSON", "", &Chat::save},
       {"/load", "FILE", "continues the messages in a file", "", &Chat::load},
       {"/stats", "", "shows tokens, speed and memory", "", &Chat::stats},
       {"/exit", "", "ends the program, as Ctrl-D does", "/quit", &Chat::leave},
       {"/bye", "", "the same", "", &Chat::leave}}};
  line = trim(line);
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, end);
  const auto* found = std::ranges::find_if(
      kCommands, [&](const Command& c) { return c.name == name || c.alias == name; });
  if (found == kCommands.end()) {
    std::vector<std::string> names;
    for (const Command& command : kCommands) {
      names.emplace_back(command.name);
      if (!command.alias.empty()) names.emplace_back(command.alias);
    }
    if (const auto meant = near_miss(name, names))
      fail(ErrorKind::usage, "unknown command {}; did you mean {}?", name, *meant);
    fail(ErrorKind::usage, "unknown command {}; type /help for the commands", name);
  }
  const std::string rest(trim(line.substr(end)));
  if (found->run != &Chat::help) return (this->*found->run)(rest);
  std::string text;
  for (const Command& command : kCommands)
    text += fmt::format("  {:<12} {:<13} {}{}\n", command.name, command.argument, command.help,
                        command.alias.empty() ? "" : fmt::format(" (also {})", command.alias));
  log::show(
      text +
      "A backslash at the end of a line, or \"\"\" around several, makes a message of several "
      "lines.\nCtrl-C ends an answer.\n");
  return true;
}

bool Chat::help(const std::string&) { return true; }  // command() has the table

bool Chat::regenerate(const std::string&) {
  if (conversation_.turns() == 0)
    fail(ErrorKind::usage, "there is no message to answer again; type one");
  Json before = conversation_.take_answer();
  bool answered = false;
  try {
    answered = respond();
  } catch (...) {
    conversation_.put_back(std::move(before));
    throw;
  }
  if (!answered) conversation_.put_back(std::move(before));
  return true;
}

bool Chat::undo(const std::string&) {
  if (!conversation_.drop_last_turn())
    fail(ErrorKind::usage, "there is no message to remove; type one");
  log::show(fmt::format("last turn removed; turns left: {}\n", conversation_.turns()));
  return true;
}

bool Chat::drop(const std::string& rest) {
  int64_t wanted = 1;
  if (!rest.empty()) wanted = parse_number<int64_t>(rest).value_or(0);
  if (wanted < 1)
    fail(ErrorKind::usage, "/drop {}: give the number of turns to remove, 1 or more", rest);
  int64_t dropped = 0;
  while (dropped < wanted && conversation_.drop_oldest_turn(false)) ++dropped;
  log::show(fmt::format("oldest turns removed: {}; left: {}\n", dropped, conversation_.turns()));
  return true;
}

// By the options of the command line, so that names, values and refusals are the same.
bool Chat::set(const std::string& rest) {
  CLI::App options;
  options.option_defaults()->always_capture_default();
  SamplingOptions sampling;
  sampling.params = sampling_;
  int64_t max_tokens = max_tokens_;
  add_sampling_options(options, sampling);
  options.add_option("--max-tokens", max_tokens);
  options.remove_option(options.get_option("--logprobs"));
  const size_t end = std::min(rest.find_first_of(" \t="), rest.size());
  std::string name = rest.substr(0, end);
  std::ranges::replace(name, '_', '-');
  CLI::Option* option = name.empty() ? nullptr : options.get_option_no_throw("--" + name);
  const std::string value(trim(std::string_view(rest).substr(std::min(end + 1, rest.size()))));
  if (option == nullptr || value.empty()) {
    if (!rest.empty())
      fail(ErrorKind::usage, "/set {}: give NAME VALUE; type /set for the names", rest);
    log::show(settings_text(options));
    return true;
  }
  try {
    options.parse(std::vector<std::string>{fmt::format("--{}={}", name, value)});
  } catch (const CLI::ParseError& e) {
    const std::string why = plain_sentence(options, e);
    if (why.starts_with("--")) fail(ErrorKind::usage, "/set {}", why.substr(2));
    fail(ErrorKind::usage, "/set {}: {}", rest, why);
  }
  SamplingParams params = sampling_params(sampling);
  check_sampling(params, planner_.checkpoint().spec().vocab_size);
  if (max_tokens < 0 || max_tokens >= context_)
    fail(ErrorKind::usage, "/set max_tokens {}: give 1 to {}, or 0 for as many as there is room",
         max_tokens, context_ - 1);
  sampling_ = std::move(params);
  max_tokens_ = max_tokens;
  log::show(fmt::format("{} is {}\n", rest.substr(0, end), value));
  return true;
}

bool Chat::reset(const std::string&) {
  conversation_.reset();
  log::show("a new conversation\n");
  return true;
}

bool Chat::save(const std::string& rest) {
  if (rest.empty()) fail(ErrorKind::usage, "/save needs the name of a file");
  write_text(rest, conversation_.json().dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
             "/save", signals_.token());
  log::show(fmt::format("{} messages saved\n", conversation_.json().size()));
  return true;
}

bool Chat::load(const std::string& rest) {
  if (rest.empty()) fail(ErrorKind::usage, "/load needs the name of a file");
  conversation_ = Conversation::from_json(read_input(rest, "/load", signals_.token()), rest);
  log::show(fmt::format("{} messages loaded\n", conversation_.json().size()));
  return true;
}

bool Chat::system(const std::string& rest) {
  conversation_.set_system(rest);
  log::show(rest.empty() ? "no system message\n" : "a new system message\n");
  return true;
}

bool Chat::stats(const std::string&) {
  const EngineStats all = engine_->stats();
  const int64_t computed = turn_.prompt_tokens - turn_.reused_tokens;
  log::show(fmt::format(
      "last turn: {} tokens in the conversation, {} of them from the KV cache, {} generated; "
      "prompt {:.1f} tokens/s, answer {:.1f} tokens/s\n"
      "all turns: {} prompt tokens, {} of them from the KV cache, {} generated\n"
      "memory: {} of {}; room for {} tokens\n",
      turn_.prompt_tokens + turn_.generated_tokens, turn_.reused_tokens, turn_.generated_tokens,
      rate(computed, turn_.prefill_seconds), rate(turn_.generated_tokens - 1, turn_.decode_seconds),
      all.prompt_tokens, all.prefix_tokens, all.generated_tokens,
      format_size(models_->model().predicted_peak()), format_size(planner_.machine().budget()),
      context_));
  return true;
}

bool Chat::leave(const std::string&) { return false; }

}  // namespace sluice::cli
