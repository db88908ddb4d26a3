// sluice docs: the man page and the shell completions, from the same definitions as the help texts.
// Hidden; `cmake --install` uses it.
#include <sstream>

#include "src/base/error.h"
#include "src/cli/common.h"
#include "src/cli/completions.h"
#include "src/cli/help.h"
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

void man_option(const CLI::Option& option, std::string& out) {
  std::string name = option.get_name(false, true);
  const std::string standard = default_text(option);
  out +=
      fmt::format(".TP\n.B {}{}\n{}{}\n", roff(name), value_name(option), roff(described(option)),
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
  out +=
      ".SH ENVIRONMENT\n.TP\n.B SLUICE_OPTION\nThe value of each option that is not on the "
      "command line, such as SLUICE_MAX_TOKENS for \\-\\-max\\-tokens; true or false for those "
      "without a value, a value a line for those that may be given several times. What it leaves "
      "open is taken from the file of \\-\\-config.\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : exit_statuses())
    out += fmt::format(".TP\n.B {}\n{}\n", status, roff(std::string(meaning)));
  return out;
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
