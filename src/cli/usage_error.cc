#include "src/cli/usage_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/strings.h"
#include "src/cli/near_miss.h"

namespace sluice::cli {
namespace {

using Halves = std::pair<std::string_view, std::string_view>;

// The texts before and after `middle`.
std::optional<Halves> split(std::string_view text, std::string_view middle) {
  const size_t at = text.find(middle);
  if (at == std::string_view::npos) return std::nullopt;
  return Halves{text.substr(0, at), text.substr(at + middle.size())};
}

// Options of llama.cpp, vLLM, SGLang and transformers, and what to give in their place.
struct OtherOption {
  std::string_view names;  // between spaces
  std::string_view instead;
};
constexpr OtherOption kOthers[] = {
    {" -m --model --model-path --hf-repo -hf --hf ", "give the model behind the command"},
    {" -c --ctx-size --context-length --n-ctx ", "give --max-model-len"},
    {" -ngl --n-gpu-layers --gpu-layers ", "give --device cuda; --place and --cpu-moe say more"},
    {" -ot --override-tensor ", "give --place"},
    {" --gpu-memory-utilization --mem-fraction-static ", "give --device-memory, such as 90%"},
    {" --cpu-offload-gb ", "give --device-memory: weights that do not fit stay in host memory"},
    {" --n-predict --predict --max-new-tokens ", "give --max-tokens"},
    {" --temp ", "give --temperature"},
    {" --repeat-penalty ", "give --repetition-penalty"},
    {" -t --n-threads ", "give --threads"},
    {" -np --parallel --max-running-requests ", "give --max-num-seqs"},
    {" -ctk -ctv --cache-type-k --cache-type-v ", "give --kv-cache-dtype"},
    {" --grammar-file ", "give --grammar"},
    {" --chat-template-file ", "give --chat-template"},
    {" -md --model-draft --speculative-model --speculative-config ", "give --draft-model"},
    {" -tp --tp --tp-size ", "give --tensor-parallel-size"},
    {" -pp --pp --pp-size ", "give --pipeline-parallel-size"},
    {" --data-parallel-size -dp ",
     "a model is divided by --tensor-parallel-size or --pipeline-parallel-size"},
    {" -a --alias ", "give --served-model-name"},
    {" --revision ", "give the revision behind the name: ORG/NAME@REVISION"},
    {" --download-dir --cache-dir ", "set HF_HUB_CACHE"},
    {" --hf-token ", "set HF_TOKEN"},
    {" -f ", "give --prompt-file"},
    {" --quant --load-in-4bit --load-in-8bit ", "give --quantization"},
    {" --trust-remote-code --enable-auto-tool-choice --tool-call-parser --jinja --enforce-eager ",
     "leave it out, it is not needed here"}};

// "; give --max-model-len"; empty: the option is none of another program.
std::string other_option(std::string_view word) {
  const std::string name = fmt::format(" {} ", word.substr(0, word.find('=')));
  for (const OtherOption& other : kOthers)
    if (other.names.find(name) != other.names.npos) return fmt::format("; {}", other.instead);
  return {};
}

// "; did you mean --memory?" where an option of the verb is near the word.
std::string meant_option(const CLI::App& verb, std::string_view word) {
  if (std::string instead = other_option(word); !instead.empty()) return instead;
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string given = fmt::format("--{}", word.substr(word.find_first_not_of('-')));
  const auto meant = near_miss(std::string_view(given).substr(0, given.find('=')), known);
  return meant ? fmt::format("; did you mean {}?", *meant) : std::string();
}

std::vector<std::string> names_of_verbs(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::App* each : verb.get_subcommands([](const CLI::App*) { return true; }))
    if (!each->get_group().empty()) names.push_back(each->get_name());
  return names;
}

// "run MODEL Once upon" may be meant as one text.
bool takes_text(const CLI::App& verb) { return verb.get_option_no_throw("TEXT") != nullptr; }

std::string extras_sentence(const CLI::App& verb) {
  const std::vector<std::string> extras = verb.remaining();
  const auto option = std::ranges::find_if(extras, [](const std::string& word) {
    return word.starts_with('-') && word.find_first_not_of('-') != std::string::npos;
  });
  if (option != extras.end())
    return fmt::format("unknown option {}{}", *option, meant_option(verb, *option));
  const std::vector<std::string> verbs = names_of_verbs(verb);
  if (!verbs.empty() && !extras.empty())
    return fmt::format("unknown command {}; choose one of: {}", extras.front(),
                       fmt::join(verbs, ", "));
  return fmt::format("{}: one argument too many{}",
                     extras.empty() ? std::string("command line") : extras.front(),
                     takes_text(verb) ? "; put quotes around a text with spaces" : "");
}

std::string validation_sentence(std::string_view what) {
  if (const auto range = split(what, " not in range ")) {
    if (const auto named = split(range->first, ": Value ")) {
      // "-ngl" is read as "-n gl".
      if (named->first == "--max-tokens" && named->second == "gl")
        return fmt::format("unknown option -ngl{}", other_option("-ngl"));
      if (const auto ends = split(range->second, " to "))
        return fmt::format("{} {}: must be a number from {} to {}", named->first, named->second,
                           ends->first, ends->second);
    }
  }
  if (const auto list = split(what, " not in {")) {
    if (const auto named = split(list->first, ": ")) {
      const auto choices = split_text(list->second.substr(0, list->second.rfind('}')), ',');
      return fmt::format("{} {}: choose one of: {}", named->first, named->second,
                         fmt::join(choices, ", "));
    }
  }
  return std::string(what);
}

}  // namespace

std::string plain_sentence(const CLI::App& verb, const CLI::ParseError& error) {
  const std::string_view what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return extras_sentence(verb);
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr)
    return validation_sentence(what);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::vector<std::string> verbs = names_of_verbs(verb);
    if (!verbs.empty() && !verb.remaining().empty()) return extras_sentence(verb);
    if (!verbs.empty()) return fmt::format("give one of: {}", fmt::join(verbs, ", "));
    if (const auto named = split(what, " is required"))
      return fmt::format("{} is missing", named->first);
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    if (const auto both = split(what, " excludes "))
      return fmt::format("{} does not go with {}; leave one of them out", both->first,
                         both->second);
  }
  if (const auto twice = split(what, ": At Most 1 required but received "))
    return fmt::format("{} is given {} times; give it once", twice->first, twice->second);
  if (const auto value = split(what, "Could not convert: ")) {
    if (const auto named = split(value->second, " = "))
      return fmt::format("{} {}: must be a number", named->first, named->second);
  }
  if (const auto missing = split(what, " required "))
    if (missing->second.ends_with(" missing"))
      if (const auto named = split(missing->first, ": "))
        return fmt::format("{} needs a value", named->first);
  return std::string(what);
}

std::string usage_sentence(const CLI::App& verb, const CLI::ParseError& error) {
  std::string path;
  for (const CLI::App* each = &verb; each != nullptr; each = each->get_parent())
    path = each->get_name() + (path.empty() ? "" : " ") + path;
  return fmt::format("{} (see {} --help)", plain_sentence(verb, error), path);
}

}  // namespace sluice::cli
