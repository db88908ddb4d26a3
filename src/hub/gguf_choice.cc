#include "src/hub/gguf_choice.h"

#include <regex>

#include "src/base/strings.h"

namespace sluice {
namespace {

constexpr std::string_view kUsual = "Q4_K_M";

std::string_view file_name(std::string_view file) {
  return file.substr(file.rfind('/') + 1);  // npos + 1 is 0
}

// The name without ".gguf" and "-00001-of-00003".
std::string stem_of(std::string_view file) {
  static const std::regex kParts("-[0-9]{5}-of-[0-9]{5}$");
  std::string_view name = file_name(file);
  name.remove_suffix(std::string_view(".gguf").size());
  return std::regex_replace(std::string(name), kParts, "");
}

bool is_later_part(std::string_view file) {
  static const std::regex kLater("-([0-9]{5})-of-[0-9]{5}\\.gguf$", std::regex::icase);
  std::cmatch match;
  return std::regex_search(file.data(), file.data() + file.size(), match, kLater) &&
         match[1].str() != "00001";
}

// "Q4_K_M", "IQ2_XXS", "BF16", "UD-Q4_K_XL": the last word of a name that is a type of GGUF.
std::string tag_of(const std::string& stem) {
  static const std::regex kTag(
      "(?:^|[-._])((?:UD-)?(?:I?Q[0-9](?:_[0-9A-Z]+)*|TQ[0-9]_[0-9]|(?:MX|NV)FP4(?:_[A-Z]+)*|B?F16|"
      "F32))$",
      std::regex::icase);
  std::smatch match;
  return std::regex_search(stem, match, kTag) ? match[1].str() : stem;
}

}  // namespace

std::vector<GgufChoice> gguf_choices(std::span<const std::string> files) {
  std::vector<GgufChoice> choices;
  for (const std::string& file : files) {
    const std::string name = lower_ascii(file_name(file));
    if (!name.ends_with(".gguf") || name.starts_with("mmproj") ||
        name.find("imatrix") != std::string::npos)
      continue;
    if (!is_later_part(file)) choices.push_back({file, tag_of(stem_of(file))});
  }
  return choices;
}

std::optional<GgufChoice> choose_gguf(std::span<const GgufChoice> choices, std::string_view tag) {
  if (tag.empty() && choices.size() == 1) return choices.front();
  const std::string wanted = lower_ascii(tag.empty() ? kUsual : tag);
  for (const GgufChoice& each : choices) {
    if (lower_ascii(each.file) == wanted || lower_ascii(file_name(each.file)) == wanted ||
        lower_ascii(stem_of(each.file)) == wanted || lower_ascii(each.tag) == wanted)
      return each;
  }
  return std::nullopt;
}

}  // namespace sluice
