#include "src/hub/listing.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "src/base/error.h"
#include "src/hub/gguf_choice.h"

namespace sluice {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 46;  // of a file; more is no model's
constexpr const char* kRunFrom[] = {"*.json",     "*.jinja",    "*.model",
                                    "*.tiktoken", "merges.txt", "vocab.txt"};
// Weights, of which the first kind is fetched that the repository has.
constexpr const char* kWeights[] = {"*.safetensors", "pytorch_model*.bin", "model.npz", "np/*",
                                    "consolidated*"};
// Copies of the same weights for other programs, beside them in the repository.
constexpr const char* kForOthers[] = {"original/*", "onnx/*", "openvino/*", "coreml/*", "metal/*"};
constexpr std::string_view kConsolidated = "consolidated";  // and in Meta's format

bool matches_any(const std::string& file, const auto& patterns) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) {
    return fnmatch(std::string(pattern).c_str(), file.c_str(), 0) == 0;
  });
}

bool is_inside(const std::filesystem::path& file) {
  return file.has_filename() && file.native().find('\0') == std::string::npos &&
         file.is_relative() && std::ranges::none_of(file, [](const std::filesystem::path& part) {
           return part == ".." || part == ".";
         });
}

bool is_too_long(const std::filesystem::path& file) {
  constexpr size_t kMostName = 255;  // bytes, on every file system
  return std::ranges::any_of(
      file, [](const std::filesystem::path& part) { return part.native().size() > kMostName; });
}

bool is_hash(const std::string& text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

HubFile parse_file(const Json& sibling, const std::string& where) {
  const JsonFields fields(sibling, where + ": siblings");
  HubFile file;
  file.file = fields.string("rfilename");
  if (is_too_long(file.file))
    fail(ErrorKind::refused, "{}: {}... is longer than names of files can be", where,
         file.file.substr(0, 40));
  if (!is_inside(file.file))
    fail(ErrorKind::refused, "{}: {} lies outside of the repository", where, file.file);
  file.bytes = static_cast<uint64_t>(fields.integer("size", 0, kMostBytes));
  if (fields.has("lfs")) {
    file.hash = JsonFields(fields.raw("lfs"), where + ": lfs").string("sha256");
    file.kind = DigestKind::sha256;
  } else {
    file.hash = fields.string("blobId");
  }
  if (!is_hash(file.hash, file.kind == DigestKind::sha256 ? 64 : 40))
    fail(ErrorKind::refused, "{}: {} has no hash", where, file.file);
  return file;
}

// A pattern that only this name matches.
std::string literal_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// The parts of a GGUF model, of which `first` is the first.
std::string parts_pattern(const std::string& first) {
  constexpr std::string_view kFirst = "-00001-of-";
  std::string pattern = literal_pattern(first);
  if (const size_t at = pattern.find(kFirst); at != std::string::npos)
    pattern.replace(at + 1, 5, "?????");
  return pattern;
}

bool is_of_kind(const std::string& file, const char* weights) {
  const bool consolidated = file.starts_with(kConsolidated);
  return consolidated == std::string_view(weights).starts_with(kConsolidated) &&
         fnmatch(weights, file.c_str(), 0) == 0 && !matches_any(file, kForOthers);
}

// The weights of a repository, and what else a model is run from.
std::vector<std::string> whole_model(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  const auto kind = std::ranges::find_if(kWeights, [&](const char* weights) {
    return std::ranges::any_of(names, [&](const auto& file) { return is_of_kind(file, weights); });
  });
  for (const std::string& file : names) {
    const bool weights = kind != std::end(kWeights) && is_of_kind(file, *kind);
    const bool beside = matches_any(file, kRunFrom) && !matches_any(file, kForOthers);
    if (weights || (beside && !file.starts_with(kConsolidated)))
      files.push_back(literal_pattern(file));
  }
  return files;
}

// Names or patterns of files.
std::vector<std::string> wanted(const HubListing& listing, const HubName& name) {
  std::vector<std::string> names;
  for (const HubFile& file : listing.files) names.push_back(file.file);
  const std::vector<GgufChoice> choices = gguf_choices(names);
  const bool safetensors = std::ranges::any_of(
      names, [](const std::string& file) { return file.ends_with(".safetensors"); });
  if (name.tag.empty() && (safetensors || choices.empty())) return whole_model(names);
  const auto choice = choose_gguf(choices, name.tag);
  if (!choice) {
    std::vector<std::string> tags;
    for (const GgufChoice& each : choices) tags.push_back(name.repository() + ":" + each.tag);
    if (tags.empty()) fail(ErrorKind::refused, "{}: the repository has no GGUF files", name.text());
    fail(ErrorKind::refused, "{}: choose one of its GGUF models: {}", name.text(),
         fmt::join(tags, ", "));
  }
  return {parts_pattern(choice->file)};
}

}  // namespace

HubListing parse_listing(const Json& answer, const std::string& where) {
  const JsonFields fields(answer, where);
  HubListing listing;
  listing.commit = fields.string("sha");
  if (!is_hash(listing.commit, 40)) fail(ErrorKind::refused, "{}: sha is not a commit", where);
  const Json& siblings = fields.raw("siblings");
  if (!siblings.is_array()) fail(ErrorKind::refused, "{}: siblings must be a list of files", where);
  for (const Json& sibling : siblings) listing.files.push_back(parse_file(sibling, where));
  return listing;
}

std::vector<HubFile> files_to_fetch(const HubListing& listing, const HubName& name,
                                    const std::vector<std::string>& include,
                                    const std::vector<std::string>& exclude) {
  const std::vector<std::string> patterns = include.empty() ? wanted(listing, name) : include;
  std::vector<HubFile> files;
  for (const HubFile& file : listing.files) {
    if (!matches_any(file.file, patterns) || matches_any(file.file, exclude)) continue;
    if (include.empty() && matches_any(file.file, kForOthers)) continue;
    files.push_back(file);
  }
  if (files.empty())
    fail(ErrorKind::refused,
         "{}: none of the repository's {} files is to be fetched; name some with --include",
         name.text(), listing.files.size());
  return files;
}

}  // namespace sluice
