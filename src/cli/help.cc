#include "src/cli/help.h"

#include <fmt/format.h>

#include <array>
#include <sstream>

namespace sluice::cli {
namespace {

constexpr std::array<const char*, 8> kGroups{
    kOwnGroup,        kModelGroup,        kMemoryGroup, kQuantizationGroup,
    kGenerationGroup, kConversationGroup, kOutputGroup, kAdvancedGroup};
constexpr size_t kNameColumns = 32;
constexpr size_t kTextColumns = 68;

std::string wrapped(const std::string& text) {
  std::istringstream words(text);
  std::string lines;
  size_t used = 0;
  for (std::string word; words >> word; used += word.size()) {
    if (used > 0) {
      bool breaks = used + 1 + word.size() > kTextColumns;
      lines += breaks ? '\n' : ' ';
      used = breaks ? 0 : used + 1;
    }
    lines += word;
  }
  return lines;
}

}  // namespace

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

HelpFormatter::HelpFormatter() { column_width(kNameColumns); }

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string help = make_description(app) + make_usage(app, std::move(name));
  for (auto& [group, options] : grouped_options(*app)) {
    help += fmt::format("\n{}:\n", group);
    for (const CLI::Option* option : options) help += make_option(option, option->get_positional());
  }
  return help + make_subcommands(app, mode) + "\n" + make_footer(app);
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return wrapped(option->get_description());
}

std::string short_help(const CLI::App& app) {
  std::string help = "usage: sluice VERB MODEL [options]\n\nverbs:\n";
  for (const CLI::App* verb :
       app.get_subcommands([](const CLI::App* v) { return !v->get_group().empty(); }))
    help += fmt::format("  {:<12} {}\n", verb->get_name(), verb->get_description());
  return help + "\nexample:\n  sluice run MODEL -p \"Once upon a time\" -n 100\n\n";
}

}  // namespace sluice::cli
