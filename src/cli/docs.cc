// sluice docs: the man page and the shell completions, from the same definitions as the help texts.
// Hidden; `cmake
// --install` uses it.
#include <algorithm>
#include <sstream>

#include "src/base/error.h"
#include "src/cli/common.h"
#include "src/cli/verbs.h"

namespace sluice::cli {
namespace {

// Leading '.' or "'" would be a request to roff, a backslash an escape.
std::string roff(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

std::vector<const CLI::App*> shown_verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); });
}

void man_option(const CLI::Option& option, std::string& out) {
  std::string name = option.get_name(false, true);
  std::string value = option.get_expected_min() > 0 && !option.get_positional() ? " VALUE" : "";
  std::string standard = option.get_default_str();
  out += fmt::format(".TP\n.B {}{}\n{}{}\n", roff(name), value, roff(option.get_description()),
                     standard.empty() ? "" : fmt::format(" (default: {})", roff(standard)));
}

void man_options(const CLI::App& verb, std::string& out) {
  for (const auto& [group, options] : grouped_options(verb)) {
    out += fmt::format(".PP\n.I {}\n", group);
    for (const CLI::Option* option : options) man_option(*option, out);
  }
}

void man_verb(const CLI::App& verb, const std::string& prefix, std::string& out) {
  std::string name = prefix + verb.get_name();
  out += fmt::format(".SS {}\n{}\n", roff(name), roff(verb.get_description()));
  man_options(verb, out);
  if (std::string footer = verb.get_footer(); !footer.empty()) {
    out += ".PP\n.nf\n";
    std::istringstream lines(footer);
    for (std::string line; std::getline(lines, line);) out += roff(line) + "\n";
    out += ".fi\n";
  }
  for (const CLI::App* child : shown_verbs(verb)) man_verb(*child, name + " ", out);
}

std::string man_page(const CLI::App& app) {
  std::string out = fmt::format(
      ".TH SLUICE 1\n.SH NAME\nsluice \\- {}\n.SH SYNOPSIS\n.B sluice\nVERB MODEL [options]\n.SH "
      "VERBS\n",
      roff(app.get_description()));
  for (const CLI::App* verb : shown_verbs(app)) man_verb(*verb, "sluice ", out);
  out += ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : exit_statuses())
    out += fmt::format(".TP\n.B {}\n{}\n", status, roff(std::string(meaning)));
  return out;
}

std::vector<std::string> words(const CLI::App& app) {
  std::vector<std::string> all;
  for (const CLI::App* verb : shown_verbs(app)) all.push_back(verb->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
    for (const std::string& name : option->get_snames()) all.push_back("-" + name);
  }
  return all;
}

std::string bash_completion(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* verb : shown_verbs(app)) {
    cases +=
        fmt::format("    {}) words=\"{}\" ;;\n", verb->get_name(), fmt::join(words(*verb), " "));
  }
  return fmt::format(
      "_sluice() {{\n  local current=${{COMP_WORDS[COMP_CWORD]}} words\n  case ${{COMP_WORDS[1]}} "
      "in\n{}    *) words=\"{}\" ;;\n"
      "  esac\n  if [[ $current == -* || $COMP_CWORD -eq 1 ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n  else\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n  fi\n}}\ncomplete -o filenames "
      "-F _sluice sluice\n",
      cases, fmt::join(words(app), " "));
}

std::string fish_completion(const CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : shown_verbs(app)) {
    out += fmt::format("complete -c sluice -n __fish_use_subcommand -a {} -d \"{}\"\n",
                       verb->get_name(), verb->get_description());
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        out += fmt::format("complete -c sluice -n \"__fish_seen_subcommand_from {}\" -l {}\n",
                           verb->get_name(), name);
      }
    }
  }
  return out;
}

// zsh can use bash's completion function.
std::string zsh_completion(const CLI::App& app) {
  return "#compdef sluice\nautoload -U +X bashcompinit && bashcompinit\n" + bash_completion(app);
}

void run(const CLI::App& app, const std::string& kind) {
  if (kind == "man") print(man_page(app));
  if (kind == "bash") print(bash_completion(app));
  if (kind == "zsh") print(zsh_completion(app));
  if (kind == "fish") print(fish_completion(app));
}

}  // namespace

void define_docs(CLI::App& app, std::stop_token) {
  auto kind = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("docs", "Print the man page or a shell's completions")->group("");
  verb->add_option("KIND", *kind, "Print this: man, bash, zsh, fish")
      ->required()
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish"}));
  verb->callback([kind, &app] { run(app, *kind); });
}

}  // namespace sluice::cli
