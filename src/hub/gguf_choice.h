// Chooses one of a repository's GGUF files: most have the same model in several sizes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// A model: its file, or the first of its parts; the tag that chooses it among the others.
struct GgufChoice {
  std::string file;
  std::string tag;  // "Q4_K_M"; the file's name where that has none
};

// The models among `files` (names relative to the repository), in their order. Parts count once,
// and what is no language model (mmproj, imatrix) does not count.
std::vector<GgufChoice> gguf_choices(std::span<const std::string> files);

// The one that `tag` names, in any case of letters: a file's name or the part of it that tells the
// files apart. Without a tag the only one, else Q4_K_M as other programs take. nullopt: none.
std::optional<GgufChoice> choose_gguf(std::span<const GgufChoice> choices, std::string_view tag);

}  // namespace sluice
