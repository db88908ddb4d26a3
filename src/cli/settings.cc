#include "src/cli/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <set>

#include "io/file.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/help.h"
#include "src/cli/near_miss.h"

namespace sluice::cli {
namespace {

using Values = std::map<std::string, std::vector<std::string>>;  // by option, as "--max-tokens"

std::vector<const CLI::App*> children_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); });
}

const CLI::App* child_of(const CLI::App& app, std::string_view name) {
  const std::vector<const CLI::App*> verbs = children_of(app);
  const auto found =
      std::ranges::find_if(verbs, [&](const CLI::App* verb) { return verb->get_name() == name; });
  return found == verbs.end() ? nullptr : *found;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }
bool takes_several(const CLI::Option& option) { return option.get_expected_max() > 1; }

// The options with long names, of `app` and all verbs within it.
std::set<std::string> option_names(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
  for (const CLI::App* verb : children_of(app)) names.merge(option_names(*verb));
  return names;
}

// Options that the command line gives, and the value of --config.
struct Given {
  std::set<const CLI::Option*> options;
  std::optional<std::string> config;
  bool help = false;
};

Given given_options(const CLI::App& verb, const std::vector<std::string>& words, size_t at) {
  Given given;
  for (; at < words.size() && words[at] != "--"; ++at) {
    const std::string& word = words[at];
    if (word.size() < 2 || word[0] != '-') continue;
    const bool is_long = word[1] == '-';
    const size_t end = is_long ? std::min(word.find('='), word.size()) : 2;
    const CLI::Option* option = verb.get_option_no_throw(word.substr(0, end));
    if (option == nullptr) continue;
    given.options.insert(option);
    given.help = given.help || option == verb.get_help_ptr();
    if (!takes_value(*option)) continue;
    std::string value = word.substr(std::min(end + (is_long ? 1 : 0), word.size()));
    if (end == word.size() && at + 1 < words.size()) value = words[++at];
    if (option->check_lname("config")) given.config = value;
  }
  return given;
}

std::vector<std::string> values_of(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return {text->get()};
  if (const auto* number = node.as_integer()) return {std::to_string(number->get())};
  if (const auto* number = node.as_floating_point()) return {fmt::format("{}", number->get())};
  if (const auto* flag = node.as_boolean()) return {flag->get() ? "true" : "false"};
  const toml::array* list = node.as_array();
  if (list == nullptr)
    fail(ErrorKind::usage, "{}: must be a text, a number, true, false, or a list of them", where);
  std::vector<std::string> values;
  for (const toml::node& each : *list) {
    if (each.is_array()) fail(ErrorKind::usage, "{}: a list must not contain lists", where);
    for (std::string& value : values_of(each, where)) values.push_back(std::move(value));
  }
  return values;
}

class ConfigFile {
 public:
  ConfigFile(const CLI::App& app, std::string path) : app_(app), path_(std::move(path)) {
    constexpr uint64_t kLargest = MiB;
    try {
      table_ = toml::parse(io::read_small_file(path_, kLargest), path_);
    } catch (const toml::parse_error& e) {
      fail(ErrorKind::usage, "--config {}, line {}: {}; write lines such as memory = \"8G\" (TOML)",
           io::printable(path_), e.source().begin.line, io::printable(e.description()));
    }
  }

  // The settings for `verb`: its own table is more special than what is outside of tables.
  Values settings(const CLI::App& verb) const {
    Values values = read(table_, app_, "");
    for (const auto& [key, node] : table_) {
      const toml::table* table = node.as_table();
      if (table == nullptr) continue;
      const std::string name(key.str());
      const CLI::App* of = child_of(app_, name);
      if (of == nullptr) refuse(name, "is not a command", names_of(app_));
      Values own = read(*table, *of, name + ".");
      if (of != &verb && of != verb.get_parent()) continue;
      for (auto& [option, value] : own) values[option] = std::move(value);
    }
    return values;
  }

 private:
  static std::vector<std::string> names_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* verb : children_of(app)) names.push_back(verb->get_name());
    return names;
  }

  // The keys of a table but for the tables in it; each must be an option of `app`.
  Values read(const toml::table& table, const CLI::App& app, const std::string& prefix) const {
    const std::set<std::string> known = option_names(app);
    Values values;
    for (const auto& [key, node] : table) {
      if (node.is_table() && prefix.empty()) continue;
      const std::string name = prefix + std::string(key.str());
      std::string option = "--" + std::string(key.str());
      std::ranges::replace(option, '_', '-');
      if (!known.contains(option))
        refuse(name, "is not an option", {known.begin(), known.end()}, option);
      if (option == "--config" || option == "--help")
        fail(ErrorKind::usage, "--config {}: {} has no place in the file", io::printable(path_),
             name);
      values[option] = values_of(
          node, fmt::format("--config {}: {}", io::printable(path_), io::printable(name)));
    }
    return values;
  }

  [[noreturn]] void refuse(const std::string& key, const char* why,
                           const std::vector<std::string>& known,
                           const std::string& option = {}) const {
    const auto meant = near_miss(option.empty() ? key : option, known);
    fail(ErrorKind::usage, "--config {}: {} {}{}", io::printable(path_), io::printable(key), why,
         meant ? fmt::format("; did you mean {}?", meant->substr(meant->starts_with("--") ? 2 : 0))
               : std::string());
  }

  const CLI::App& app_;
  std::string path_;
  toml::table table_;
};

// Several values of a variable are one a line.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// "--option" or nothing for a flag, "--option=value" for the rest.
void add_words(const CLI::Option& option, const std::string& name,
               const std::vector<std::string>& values, const std::string& where,
               std::vector<std::string>& words) {
  if (!takes_several(option) && values.size() > 1)
    fail(ErrorKind::usage, "{}: gives several values, but {} takes one", where, name);
  for (const std::string& value : values) {
    if (takes_value(option)) {
      words.push_back(fmt::format("{}={}", name, value));
      continue;
    }
    const bool on = value == "1" || value == "true" || value == "yes" || value == "on";
    if (!on && value != "0" && value != "false" && value != "no" && value != "off")
      fail(ErrorKind::usage, "{}={}: must be true or false", where, io::printable(value));
    if (on) words.push_back(name);
  }
}

}  // namespace

void Settings::add_option(CLI::App& verb) {
  begin_group(verb, kOwnGroup);
  verb.add_option("--config",
                  "Take options that are not given, nor set by SLUICE_... variables, "
                  "from this TOML file")
      ->type_name("FILE");
}

std::string Settings::variable_of(std::string_view option) {
  std::string name = "SLUICE_";
  for (const char c : option.substr(option.find_first_not_of('-')))
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::vector<std::string> Settings::complete(const CLI::App& app, std::vector<std::string> words) {
  const CLI::App* verb = &app;
  size_t begin = 0;
  while (begin < words.size() && child_of(*verb, words[begin]) != nullptr)
    verb = child_of(*verb, words[begin++]);
  if (begin == 0) return words;
  Given given = given_options(*verb, words, begin);
  if (given.help) return words;
  Values file;
  if (const std::string_view path = environment("SLUICE_CONFIG");
      !path.empty() && !given.config && verb->get_option_no_throw("--config") != nullptr)
    given.config = path;
  if (given.config) file = ConfigFile(app, *given.config).settings(*verb);
  std::vector<std::string> added;
  for (const CLI::Option* option : verb->get_options()) {
    if (option->get_lnames().empty() || given.options.contains(option)) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (name == "--help" || name == "--config") continue;
    const std::string own = variable_of(name);
    if (const std::string value(environment(own.c_str())); !value.empty()) {
      add_words(*option, name,
                takes_several(*option) ? lines_of(value) : Values::mapped_type{value}, own, added);
      origins_[name] = own;
    } else if (const auto set = file.find(name); set != file.end()) {
      const std::string where =
          fmt::format("{} in {}", name.substr(2), io::printable(*given.config));
      add_words(*option, name, set->second, where, added);
      origins_[name] = where;
    }
  }
  words.insert(words.begin() + static_cast<ptrdiff_t>(begin), added.begin(), added.end());
  return words;
}

std::string Settings::origin(std::string_view message) const {
  for (const auto& [option, where] : origins_) {
    const size_t at = message.find(option);
    if (at == std::string_view::npos) continue;
    const size_t end = at + option.size();
    if (end == message.size() || message[end] == ' ' || message[end] == ':' || message[end] == '=')
      return fmt::format(" (set by {})", where);
  }
  return {};
}

}  // namespace sluice::cli
