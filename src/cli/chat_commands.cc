// What is said to the program in a conversation, and not to the model.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stop_token>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/chat.h"
#include "src/cli/input.h"
#include "src/cli/output.h"

namespace sluice::cli {

struct Chat::Command {
  std::string_view name;
  std::string_view argument;
  std::string_view help;
  bool (Chat::*run)(const std::string& rest);
};

namespace {

std::string_view strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

bool Chat::command(std::string_view line) {
  static constexpr std::array<Command, 8> kCommands{
      {{"/help", "", "shows this", &Chat::help},
       {"/system", "TEXT", "sets what the model is told first; without TEXT: nothing",
        &Chat::system},
       {"/reset", "", "begins a new conversation", &Chat::reset},
       {"/save", "FILE", "writes the messages as JSON", &Chat::save},
       {"/load", "FILE", "goes on with the messages in a file", &Chat::load},
       {"/stats", "", "shows tokens, speed and memory", &Chat::stats},
       {"/exit", "", "ends the program, as Ctrl-D does", &Chat::leave},
       {"/quit", "", "the same", &Chat::leave}}};
  line = strip(line);
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, end);
  const auto* found = std::ranges::find(kCommands, name, &Command::name);
  if (found == kCommands.end()) {
    std::vector<std::string_view> names;
    for (const Command& command : kCommands) names.push_back(command.name);
    fail(ErrorKind::usage, "unknown command {}; choose one of: {}", name, fmt::join(names, ", "));
  }
  const std::string rest(strip(line.substr(end)));
  if (found->run != &Chat::help) return (this->*found->run)(rest);
  std::string text;
  for (const Command& command : kCommands)
    text += fmt::format("  {:<8} {:<5} {}\n", command.name, command.argument, command.help);
  log::show(text +
            "A backslash at the end of a line, or \"\"\" around several, makes a message of more "
            "lines.\nCtrl-C ends an answer.\n");
  return true;
}

bool Chat::help(const std::string&) { return true; }  // command() has the table

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
      "last turn: {} tokens in the conversation, {} of them computed before, {} generated; "
      "{:.1f} tokens/s read, {:.1f} tokens/s generated\n"
      "all turns: {} tokens read, {} of them computed before, {} generated\n"
      "memory: {} of {}; room for {} tokens\n",
      turn_.prompt_tokens + turn_.generated_tokens, turn_.reused_tokens, turn_.generated_tokens,
      rate(computed, turn_.prefill_seconds), rate(turn_.generated_tokens - 1, turn_.decode_seconds),
      all.prompt_tokens, all.prefix_tokens, all.generated_tokens,
      format_size(session_.predicted_peak()), format_size(session_.budget()), context_));
  return true;
}

bool Chat::leave(const std::string&) { return false; }

}  // namespace sluice::cli
