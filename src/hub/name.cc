#include "src/hub/name.h"

#include <algorithm>

#include "src/base/strings.h"

namespace sluice {
namespace {

constexpr size_t kLongestPart = 96;  // as the hub has it

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// An owner or the name of a repository.
bool is_part(std::string_view text) {
  return !text.empty() && text.size() <= kLongestPart && std::ranges::all_of(text, is_word) &&
         text.find("..") == std::string_view::npos && text.find("--") == std::string_view::npos &&
         text.front() != '-' && text.front() != '.' && text.back() != '-' && text.back() != '.';
}

// A revision may have slashes ("refs/pr/3"), and so may a file; neither leads out of a directory.
bool is_path(std::string_view text) {
  if (text.empty() || text.size() > 4 * kLongestPart || text.front() == '/') return false;
  if (!std::ranges::all_of(text, [](char c) { return is_word(c) || c == '/' || c == '+'; }))
    return false;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('/', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

bool drop_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Reads what follows ORG/NAME/ in an address: the revision of a page, and a file of it. A file
// that is no GGUF stands for the model that it belongs to.
bool take_page(std::string_view rest, HubName& name) {
  const std::string_view kind = take_until(rest, '/');
  if (kind != "tree" && kind != "resolve" && kind != "blob" && kind != "raw") return false;
  name.revision = take_until(rest, '/');
  name.tag = take_until(rest, '?');
  if (!is_path(name.revision) || (!name.tag.empty() && !is_path(name.tag))) return false;
  if (!name.tag.ends_with(".gguf")) name.tag.clear();
  return true;
}

// Reads [@REVISION][:TAG].
bool take_revision_and_tag(std::string_view text, HubName& name) {
  if (drop_prefix(text, "@")) {
    name.revision = take_until(text, ':');
    name.tag = text;
    return is_path(name.revision) && (name.tag.empty() || is_path(name.tag));
  }
  if (text.empty()) return true;
  if (!drop_prefix(text, ":") || !is_path(text)) return false;
  name.tag = text;
  return true;
}

// Reads a repository's name up to what says which part of it is meant.
std::string take_name(std::string_view& text) {
  const size_t end = std::min(text.find_first_of("/@:?"), text.size());
  const std::string name(text.substr(0, end));
  text.remove_prefix(end);
  return name;
}

}  // namespace

std::string HubName::text() const {
  return repository() + (revision == "main" ? "" : "@" + revision) + (tag.empty() ? "" : ":" + tag);
}

std::optional<HubName> parse_hub_name(std::string_view text) {
  const bool scheme = drop_prefix(text, "https://") || drop_prefix(text, "http://");
  const bool host = drop_prefix(text, "huggingface.co/") ||
                    drop_prefix(text, "www.huggingface.co/") || drop_prefix(text, "hf.co/");
  if (scheme && !host) return std::nullopt;
  if (!scheme && !host) drop_prefix(text, "hf://");
  if (text.ends_with('/')) text.remove_suffix(1);
  HubName name;
  name.owner = take_until(text, '/');
  name.name = take_name(text);
  if (!is_part(name.owner) || !is_part(name.name)) return std::nullopt;
  const bool is_page = host && drop_prefix(text, "/");
  const bool right = is_page ? take_page(text, name) : take_revision_and_tag(text, name);
  return right ? std::optional(name) : std::nullopt;
}

std::optional<HubName> parse_bare_name(std::string_view text) {
  HubName name;
  name.name = take_name(text);
  if (!is_part(name.name) || !take_revision_and_tag(text, name)) return std::nullopt;
  return name;
}

}  // namespace sluice
