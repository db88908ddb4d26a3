// Help texts: options by what they are about, each in a sentence.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

// Groups of options, in the order in which help texts and the man page have them. A verb's own, and
// --help, are in the first.
inline constexpr const char* kOwnGroup = "Options";
inline constexpr const char* kModelGroup = "Model";
inline constexpr const char* kMemoryGroup = "Memory";
inline constexpr const char* kQuantizationGroup = "Quantization";
inline constexpr const char* kGenerationGroup = "Generation";
inline constexpr const char* kConversationGroup = "Conversation (chat)";
inline constexpr const char* kOutputGroup = "Output";
inline constexpr const char* kAdvancedGroup = "Advanced";

// The verbs that help texts show.
std::vector<const CLI::App*> shown_verbs(const CLI::App& app);

// Options that are added to `verb` from here on belong to the group.
void begin_group(CLI::App& verb, const char* group);

// The options of a verb by group, without empty groups.
std::vector<std::pair<std::string, std::vector<const CLI::Option*>>> grouped_options(
    const CLI::App& verb);

// The value without the option; empty: none.
std::string default_text(const CLI::Option& option);

// The word for the option's value behind its name, " FILE"; empty: it has none.
std::string value_name(const CLI::Option& option);
// The sentence, and what the value may be.
std::string described(const CLI::Option& option);

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  // The word for the option's value, and its default.
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;

 private:
  size_t text_columns_;
};

// The verbs, and one example.
std::string short_help(const CLI::App& app);

}  // namespace sluice::cli
