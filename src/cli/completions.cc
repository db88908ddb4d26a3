#include "src/cli/completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "src/cli/common.h"
#include "src/cli/help.h"
#include "src/plan/quantize.h"

namespace sluice::cli {
namespace {

// Words that an option takes; empty: files, or what only the user knows.
std::string choices_of(std::string_view option) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kChoices{
      {{"--quantize-modules", "linear embedding head norm all"},
       {"--dtype", "auto bfloat16 float32"},
       {"--kv-cache-dtype", "auto bfloat16 float32 fp8 fp8_e4m3 fp8_e5m2"},
       {"--device", "cpu cuda"},
       {"--reader", "auto uring pread mmap"},
       {"--kernels", "auto amx avx512_bf16 avx2 portable reference"},
       {"--log-level", "debug info warning error off"},
       {"--max-model-len", "auto"},
       {"--speculation", "auto none prompt_lookup"},
       {"--reasoning", "show hide"},
       {"--reasoning-parser", "auto deepseek_r1"},
       {"--tool-format", "auto generic none"},
       {"--pooling", "last cls mean max"},
       {"--spill-dir", "auto none"}}};
  if (option == "--quantization") {
    std::string names = scheme_names();
    std::erase(names, ',');
    return names;
  }
  if (option == "--load-format") return fmt::format("{}", fmt::join(kLoadFormats, " "));
  const auto* found =
      std::ranges::find(kChoices, option, [](const auto& choice) { return choice.first; });
  return found == kChoices.end() ? "" : std::string(found->second);
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : shown_verbs(app)) names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> all = verb_names(app);
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
    for (const std::string& name : option->get_snames()) all.push_back("-" + name);
  }
  return all;
}

void bash_words(const CLI::App& verb, const std::string& pattern, std::string& cases) {
  for (const CLI::App* inner : shown_verbs(verb))
    bash_words(*inner, fmt::format("\"{} {} \"*", verb.get_name(), inner->get_name()), cases);
  cases += fmt::format("    {}) words=\"{}\" ;;\n", pattern, fmt::join(words_of(verb), " "));
}

// The options of an app and of all its verbs that take one of a few words.
void bash_values(const CLI::App& app, std::vector<std::string>& seen, std::string& cases) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const std::string choices = choices_of(name);
    if (choices.empty() || std::ranges::find(seen, name) != seen.end()) continue;
    seen.push_back(name);
    cases += fmt::format("    {}) values=\"{}\" ;;\n", name, choices);
  }
  for (const CLI::App* verb : shown_verbs(app)) bash_values(*verb, seen, cases);
}

std::string fish_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

void fish_options(const CLI::App& verb, const std::string& seen, std::string& out) {
  for (const CLI::Option* option : verb.get_options()) {
    std::string names;
    for (const std::string& name : option->get_lnames()) names += " -l " + name;
    for (const std::string& name : option->get_snames()) names += " -s " + name;
    if (names.empty()) continue;
    const std::string choices =
        option->get_lnames().empty() ? "" : choices_of("--" + option->get_lnames().front());
    std::string value = option->get_items_expected_max() > 0 ? " -r" : "";
    if (!choices.empty())
      value = fmt::format(" {} -a {}", option->get_type_name() == "DIRECTORY" ? "-r" : "-x",
                          fish_quoted(choices));
    out += fmt::format("complete -c sluice -n {}{}{} -d {}\n", fish_quoted(seen), names, value,
                       fish_quoted(option->get_description()));
  }
}

// `here`: where the verbs of `app` can be typed. They are no files.
void fish_verbs(const CLI::App& app, const std::string& here, std::string& out) {
  for (const CLI::App* verb : shown_verbs(app)) {
    const std::string seen = "__fish_seen_subcommand_from " + verb->get_name();
    out += fmt::format("complete -c sluice -f -n {} -a {} -d {}\n", fish_quoted(here),
                       verb->get_name(), fish_quoted(verb->get_description()));
    if (const std::vector<std::string> inner = verb_names(*verb); !inner.empty())
      fish_verbs(
          *verb,
          fmt::format("{}; and not __fish_seen_subcommand_from {}", seen, fmt::join(inner, " ")),
          out);
    fish_options(*verb, seen, out);
  }
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string cases, values;
  for (const CLI::App* verb : shown_verbs(app))
    bash_words(*verb, fmt::format("\"{} \"*", verb->get_name()), cases);
  std::vector<std::string> seen;
  bash_values(app, seen, values);
  std::string parents = "\"2 help\"";  // behind which words follow, too
  for (const CLI::App* verb : shown_verbs(app))
    if (!shown_verbs(*verb).empty()) parents += fmt::format(" | \"2 {}\"", verb->get_name());
  const std::string verbs = fmt::format("{}", fmt::join(verb_names(app), " "));
  return fmt::format(
      R"(_sluice() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words= values=
  # bash cuts "--option=value" into three words
  if [[ $current == "=" ]]; then current=; elif [[ $previous == "=" ]]; then previous=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  case $previous in
{}  esac
  case "${{COMP_WORDS[1]:-}} ${{COMP_WORDS[2]:-}} " in
{}    "help "*) words="{}" ;;
  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    return
  fi
  case "$COMP_CWORD ${{COMP_WORDS[1]:-}}" in
    "1 "*) COMPREPLY=($(compgen -W "{} help --help --version" -- "$current")); return ;;
    {}) COMPREPLY=($(compgen -W "$words" -- "$current")); return ;;
  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    local IFS=$'\n'
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _sluice sluice
)",
      values, cases, verbs, verbs, parents);
}

// zsh can use bash's completion function.
std::string zsh_completion(const CLI::App& app) {
  return "#compdef sluice\nautoload -U +X bashcompinit && bashcompinit\n" + bash_completion(app);
}

std::string fish_completion(const CLI::App& app) {
  std::string out;
  fish_verbs(app, "__fish_use_subcommand", out);
  out += fmt::format("complete -c sluice -f -n {} -a help -d {}\n",
                     fish_quoted("__fish_use_subcommand"),
                     fish_quoted("Describe a command and its options"));
  return out;
}

}  // namespace sluice::cli
