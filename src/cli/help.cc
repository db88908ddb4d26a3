#include "src/cli/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "src/base/strings.h"
#include "src/cli/chat/word_wrap.h"

namespace sluice::cli {
namespace {

constexpr std::array<const char*, 8> kGroups{
    kOwnGroup,        kModelGroup,        kMemoryGroup, kQuantizationGroup,
    kGenerationGroup, kConversationGroup, kOutputGroup, kAdvancedGroup};
constexpr size_t kNameColumns = 32;

// The width of the terminal that the text goes to, also through a pager.
size_t help_columns() {
  constexpr size_t kLeast = 60, kMost = 100;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (isatty(descriptor) != 0) return std::clamp(terminal_columns(descriptor), kLeast, kMost);
  return kMost;
}

std::string wrapped(const std::string& text, size_t columns) {
  std::istringstream words(text);
  std::string lines;
  size_t used = 0;
  for (std::string word; words >> word; used += word.size()) {
    if (used > 0) {
      bool breaks = used + 1 + word.size() > columns;
      lines += breaks ? '\n' : ' ';
      used = breaks ? 0 : used + 1;
    }
    lines += word;
  }
  return lines;
}

// The word for a value of CLI11's type, or the one that the option has of its own ("SIZE").
std::string_view value_word(std::string_view type) {
  if (type == "INT" || type == "UINT") return "N";
  return type == "FLOAT" ? "NUMBER" : type == "TEXT" ? "VALUE" : type;
}

// The parts of CLI11's "INT:INT in [0 - 65535]" or "TEXT:{auto,none}".
std::pair<std::string, std::string> type_and_check(const CLI::Option& option) {
  const std::string all = option.get_type_name();
  const size_t at = std::min(all.find(':'), all.size());
  return {all.substr(0, at), all.substr(std::min(at + 1, all.size()))};
}

// " (0 to 65535)" or " (auto, none)"; empty: any value may be.
std::string limits_of(const CLI::Option& option) {
  constexpr std::string_view kIn = " in [", kTo = " - ";
  constexpr size_t kLongest = 9;  // digits: more are the largest number that there is
  const std::string check = type_and_check(option).second;
  if (check.starts_with('{')) {
    const std::string choices = check.substr(1, check.find('}') - 1);
    return fmt::format(" ({})", fmt::join(split_text(choices, ','), ", "));
  }
  const size_t in = check.find(kIn), to = check.find(kTo, std::min(in, check.size()));
  if (in == check.npos || to == check.npos) return {};
  const std::string low = check.substr(in + kIn.size(), to - in - kIn.size());
  const std::string high = check.substr(to + kTo.size(), check.find(']') - to - kTo.size());
  return high.size() > kLongest ? fmt::format(" ({} or more)", low)
                                : fmt::format(" ({} to {})", low, high);
}

std::string lines_of_verbs(const CLI::App& app) {
  std::string lines;
  for (const CLI::App* verb : shown_verbs(app))
    lines += fmt::format("  {:<12} {}\n", verb->get_name(), verb->get_description());
  return lines;
}

}  // namespace

std::vector<const CLI::App*> shown_verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); });
}

void begin_group(CLI::App& verb, const char* group) { verb.option_defaults()->group(group); }

std::vector<std::pair<std::string, std::vector<const CLI::Option*>>> grouped_options(
    const CLI::App& verb) {
  std::vector<std::pair<std::string, std::vector<const CLI::Option*>>> groups;
  for (const char* name : kGroups) {
    auto options =
        verb.get_options([&](const CLI::Option* option) { return option->get_group() == name; });
    if (!options.empty()) groups.emplace_back(name, std::move(options));
  }
  return groups;
}

std::string default_text(const CLI::Option& option) {
  std::string value = option.get_default_str();
  const bool list = value.starts_with('[') && value.ends_with(']');
  return list ? value.substr(1, value.size() - 2) : value;
}

std::string value_name(const CLI::Option& option) {
  if (option.get_type_size() == 0 || option.get_positional()) return {};
  return fmt::format(" {}", value_word(type_and_check(option).first));
}

std::string described(const CLI::Option& option) {
  std::string text = option.get_description() + limits_of(option);
  for (const CLI::Option* other : option.get_excludes())
    text += fmt::format(" (not with {})", other->get_name());
  return text;
}

HelpFormatter::HelpFormatter() : text_columns_(help_columns() - kNameColumns) {
  column_width(kNameColumns);
  label("OPTIONS", "options");
  label("SUBCOMMAND", "COMMAND");
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string help = make_description(app) + make_usage(app, std::move(name));
  for (auto& [group, options] : grouped_options(*app)) {
    help += fmt::format("\n{}:\n", group);
    for (const CLI::Option* option : options) help += make_option(option, option->get_positional());
  }
  const std::string verbs = lines_of_verbs(*app);
  if (!verbs.empty()) help += fmt::format("\nCommands:\n{}", verbs);
  return help + "\n" + make_footer(app);
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const std::string word = value_name(*option);
  const std::string value = default_text(*option);
  return word.empty() || value.empty() ? word : word + "=" + value;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return wrapped(described(*option), text_columns_);
}

std::string short_help(const CLI::App& app) {
  return fmt::format(
      "usage: sluice COMMAND MODEL [options]\n\ncommands:\n{}\n"
      "example:\n  sluice run MODEL -p \"Once upon a time\" -n 100\n\n",
      lines_of_verbs(app));
}

}  // namespace sluice::cli
