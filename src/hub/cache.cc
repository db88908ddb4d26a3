#include "src/hub/cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "io/checkpoint/index.h"
#include "io/checkpoint/shard_index.h"
#include "io/file.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/hub/gguf_choice.h"
#include "src/hub/web_model.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";

// Names of a snapshot's files, relative to it, that lead to contents.
std::vector<std::string> files_of(const fs::path& snapshot) {
  std::vector<std::string> files;
  std::error_code fault;
  for (fs::recursive_directory_iterator at(snapshot, fault), end; !fault && at != end;
       at.increment(fault)) {
    std::error_code broken;
    if (fs::is_regular_file(at->path(), broken))
      files.push_back(at->path().lexically_relative(snapshot).generic_string());
  }
  std::ranges::sort(files);
  return files;
}

// The shards that are not here, of those that the index of a snapshot's weights names. `container`:
// container_name().
std::vector<std::string> missing_shards(const fs::path& snapshot, const std::string& container,
                                        io::OutsideLinks links) {
  constexpr uint64_t kMostBytes = 256 * MiB;
  if (!container.ends_with(".index.json")) return {};
  const io::ModelDirectory directory(snapshot, links);
  const io::ShardIndex index =
      io::parse_shard_index(directory.read(container, kMostBytes), container);
  std::error_code error;
  std::vector<std::string> missing;
  for (const io::Shard& shard : index.shards)
    if (!fs::exists(snapshot / shard.file, error)) missing.push_back(shard.file);
  return missing;
}

bool is_weights(const std::string& file) {
  return file.ends_with(".safetensors") || file.ends_with(".gguf");
}

std::optional<std::string> commit_of(const fs::path& repository, const std::string& revision) {
  constexpr uint64_t kMostBytes = 4096;
  if (fs::is_directory(repository / "snapshots" / revision)) return revision;
  const fs::path ref = repository / "refs" / revision;
  if (!fs::is_regular_file(ref)) return std::nullopt;
  std::string commit = io::read_small_file(ref, kMostBytes);
  commit.erase(std::ranges::find_if(commit, [](char c) { return c == '\n' || c == '\r'; }),
               commit.end());
  const bool plain = !commit.empty() && std::ranges::all_of(commit, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
  if (!plain || !fs::is_directory(repository / "snapshots" / commit)) return std::nullopt;
  return commit;
}

CachedModel describe(HubName name, std::string commit, fs::path snapshot, io::OutsideLinks links) {
  CachedModel model;
  try {
    const std::string container = io::container_name(snapshot);
    model.has_weights = !container.empty();
    model.missing = missing_shards(snapshot, container, links);
  } catch (const Error& e) {  // it can still be listed and removed
    if (e.kind() != ErrorKind::refused) throw;
    model.fault = e.what();
  }
  model.files = files_of(snapshot);
  for (const std::string& file : model.files) {
    model.has_weights = model.has_weights || is_weights(file);
    model.bytes += fs::file_size(snapshot / file);
  }
  model.name = std::move(name);
  model.commit = std::move(commit);
  model.snapshot = std::move(snapshot);
  return model;
}

// The revisions that a repository of the cache has: branches and tags by name, other snapshots by
// commit.
std::vector<std::string> revisions_of(const fs::path& repository) {
  std::vector<std::string> revisions = files_of(repository / "refs");
  std::set<std::string> named;
  for (const std::string& revision : revisions)
    if (const auto commit = commit_of(repository, revision)) named.insert(*commit);
  std::error_code fault;
  for (const auto& each : fs::directory_iterator(repository / "snapshots", fault))
    if (!named.contains(each.path().filename())) revisions.push_back(each.path().filename());
  return revisions;
}

std::optional<HubName> name_of(const fs::path& repository) {
  const std::string directory = repository.filename();
  if (!directory.starts_with(kPrefix)) return std::nullopt;
  std::string text = directory.substr(kPrefix.size());
  const size_t at = text.find("--");
  return at == std::string::npos ? parse_bare_name(text) : parse_hub_name(text.replace(at, 2, "/"));
}

[[noreturn]] void refuse_tag(const HubName& name, std::span<const GgufChoice> choices) {
  std::vector<std::string> tags;
  for (const GgufChoice& each : choices) tags.push_back(name.repository() + ":" + each.tag);
  if (name.tag.empty())
    fail(ErrorKind::refused, "{} has {} GGUF models; choose one: {}", name.repository(),
         choices.size(), fmt::join(tags, ", "));
  fail(ErrorKind::refused, "{}: no GGUF file of {} is called {}; {}", name.text(),
       name.repository(), name.tag, how_to_fetch(name));
}

// The path of a file that the directory is opened by; only one that a user names may be a link to
// anywhere.
fs::path checked_path(const io::ModelDirectory& directory, const std::string& file) {
  directory.resolve(file);
  return directory.path() / file;
}

// Returns what the loaders open of a directory: itself, or the GGUF file in it where it has nothing
// else.
fs::path in_directory(const fs::path& directory, io::OutsideLinks links) {
  std::error_code fault;
  if (!fs::is_directory(directory, fault) || fs::exists(directory / "config.json", fault))
    return directory;
  std::vector<std::string> files;
  for (fs::directory_iterator at(directory, fault), end; !fault && at != end; at.increment(fault))
    files.push_back(at->path().filename().string());
  // Ranks that a model is cut for open a file each.
  if (std::ranges::any_of(files, [](const auto& f) { return f.starts_with("model-rank-"); }))
    return directory;
  std::ranges::sort(files);
  const std::vector<GgufChoice> choices = gguf_choices(files);
  if (choices.empty()) return directory;
  const std::optional<GgufChoice> choice = choose_gguf(choices, {});
  if (choice) return checked_path({directory, links}, choice->file);
  std::vector<std::string> names;
  for (const GgufChoice& each : choices) names.push_back(io::printable(each.file));
  fail(ErrorKind::refused, "{} has {} GGUF models; give one of its files: {}",
       io::printable(directory.string()), choices.size(), fmt::join(names, ", "));
}

// Returns what the loaders open of a snapshot: itself, or a GGUF file in it.
fs::path in_snapshot(const CachedModel& model, ModelParts parts, io::OutsideLinks links) {
  const HubName& name = model.name;
  const std::vector<GgufChoice> choices = gguf_choices(model.files);
  const bool plain =
      choices.empty() || (fs::exists(model.snapshot / "config.json") && name.tag.empty());
  if (plain && name.tag.empty() && parts == ModelParts::without_weights) return model.snapshot;
  // The index of other weights says nothing of a GGUF file.
  if (plain && !model.fault.empty()) fail(ErrorKind::refused, "{}: {}", name.text(), model.fault);
  if (choices.empty() && !name.tag.empty())
    fail(ErrorKind::refused, "{}: {} has no GGUF files to choose from; leave :{} out", name.text(),
         name.repository(), name.tag);
  if (plain && !model.missing.empty())
    fail(ErrorKind::refused, "{}: {} of its weight files are not here ({}, ...); {}", name.text(),
         model.missing.size(), model.missing.front(), how_to_fetch(name));
  const auto has_safetensors = std::ranges::any_of(
      model.files, [](const std::string& file) { return file.ends_with(".safetensors"); });
  if (plain && (has_safetensors || choices.empty())) {
    if (!model.has_weights)
      fail(ErrorKind::refused, "{}: its weights are not here, only other files; {}", name.text(),
           how_to_fetch(name));
    return model.snapshot;
  }
  const std::optional<GgufChoice> choice = choose_gguf(choices, name.tag);
  if (!choice) refuse_tag(name, choices);
  return checked_path({model.snapshot, links}, choice->file);
}

}  // namespace

fs::path hub_home() {
  if (fs::path home = environment_path("HF_HOME"); !home.empty()) return home;
  if (fs::path cache = environment_path("XDG_CACHE_HOME"); !cache.empty())
    return cache / "huggingface";
  if (fs::path home = environment_path("HOME"); !home.empty()) return home / ".cache/huggingface";
  return {};
}

fs::path hub_cache() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (fs::path path = environment_path(variable); !path.empty()) return path;
  const fs::path home = hub_home();
  return home.empty() ? home : home / "hub";
}

std::string how_to_fetch(const HubName& name) {
  if (name.owner.empty()) return "fetch it with the program that has fetched it before";
  return fmt::format("fetch it with: sluice pull {}", name.text());
}

fs::path cached_repository(const fs::path& cache, const HubName& name) {
  const std::string owner = name.owner.empty() ? "" : name.owner + "--";
  return cache / (std::string(kPrefix) + owner + name.name);
}

std::optional<HubName> name_in_cache(const fs::path& cache, std::string_view text) {
  if (std::optional<HubName> name = parse_hub_name(text)) return name;
  const std::optional<HubName> bare = parse_bare_name(text);
  std::error_code fault;
  const bool is_there =
      bare && !cache.empty() && fs::is_directory(cached_repository(cache, *bare), fault);
  return is_there ? bare : std::nullopt;
}

std::optional<CachedModel> find_cached(const fs::path& cache, const HubName& name,
                                       io::OutsideLinks links) {
  const fs::path repository = cached_repository(cache, name);
  const std::optional<std::string> commit = commit_of(repository, name.revision);
  if (!commit) return std::nullopt;
  return describe(name, *commit, repository / "snapshots" / *commit, links);
}

std::vector<CachedModel> list_cached(const fs::path& cache) {
  std::vector<CachedModel> models;
  std::error_code fault;
  for (const auto& each : fs::directory_iterator(cache, fault)) {
    std::optional<HubName> name = name_of(each.path());
    if (!name) continue;
    for (const std::string& revision : revisions_of(each.path())) {
      name->revision = revision;
      if (auto model = find_cached(cache, *name)) models.push_back(std::move(*model));
    }
  }
  std::ranges::sort(models, {}, [](const CachedModel& model) { return model.name.text(); });
  return models;
}

uint64_t remove_tree(const fs::path& directory) {
  uint64_t bytes = 0;
  std::error_code fault;
  for (fs::recursive_directory_iterator at(directory, fault), end; !fault && at != end;
       at.increment(fault))
    if (!at->is_symlink() && at->is_regular_file()) bytes += at->file_size();
  fs::remove_all(directory, fault);
  if (fault)
    fail(ErrorKind::runtime, "{}: cannot be removed: {}", directory.string(), fault.message());
  return bytes;
}

uint64_t remove_cached(const fs::path& cache, const HubName& name) {
  return remove_tree(cached_repository(cache, name));
}

fs::path find_model(const std::string& text, io::OutsideLinks links, ModelParts parts) {
  const fs::path path = text, normal = path.lexically_normal();
  const fs::path repository = normal.has_filename() ? normal : normal.parent_path();
  std::error_code fault;
  if (const auto name = name_of(repository);
      name && fs::is_directory(repository / "snapshots", fault)) {
    if (auto model = find_cached(repository.parent_path(), *name, links))
      return in_snapshot(*model, parts, links);
  }
  if (fs::exists(path, fault)) return in_directory(path, links);
  if (const std::optional<WebAddress> address = parse_web_address(text)) {
    if (std::optional<fs::path> found = find_web_model(*address)) return *found;
    fail(ErrorKind::refused, "{} is not here; fetch it with: sluice pull {}", address->text(),
         address->text());
  }
  const fs::path cache = hub_cache();
  const std::optional<HubName> name = name_in_cache(cache, text);
  if (!name) return path;  // whoever opens it says what it must be
  if (cache.empty())
    fail(ErrorKind::refused,
         "{} is not a path, and no cache directory is set; set HF_HUB_CACHE to one", text);
  const std::optional<CachedModel> model = find_cached(cache, *name, links);
  if (!model)
    fail(ErrorKind::refused, "{} is neither a path nor in the cache {}; {}", text, cache.string(),
         how_to_fetch(*name));
  return in_snapshot(*model, parts, links);
}

}  // namespace sluice
