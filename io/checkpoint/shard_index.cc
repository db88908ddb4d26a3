#include "io/checkpoint/shard_index.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "io/checkpoint/json_events.h"
#include "io/file.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

using Kind = JsonEvent::Kind;

constexpr int kMaxDepth = 32;
constexpr size_t kMaxNameBytes = 255;  // of one name in a directory: Linux's NAME_MAX

// Why a file name from an index must not be opened; empty when it may.
std::string_view path_fault(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.starts_with('/')) return "is an absolute path";
  for (char c : name) {
    if (c == '\0') return "contains a NUL";
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "contains a control character";
    if (c == '\\') return "contains a backslash";
  }
  while (true) {
    size_t slash = name.find('/');
    std::string_view part = name.substr(0, slash);
    if (part.size() > kMaxNameBytes) return "is too long";
    if (part == "..") return "leaves the checkpoint's directory";
    if (part.empty() || part == ".") return "is not the plain name of a file";
    if (slash == std::string_view::npos) return "";
    name.remove_prefix(slash + 1);
  }
}

class IndexEntries {
 public:
  explicit IndexEntries(const std::string& where) : where_(where) {}

  void take(const JsonEvent& e) {
    if (e.depth == 0) {
      if (e.kind != Kind::object && e.kind != Kind::end) refuse("must be a JSON object");
    } else if (e.depth == 1) {
      take_section(e);
    } else if (e.depth == 2 && section_ == Section::weight_map) {
      take_tensor(e);
    } else if (e.depth == 2 && section_ == Section::metadata && e.key == "total_size" &&
               e.kind == Kind::natural) {
      total_size_ = e.number;
    }
  }

  ShardIndex finish() &&;

 private:
  enum class Section : uint8_t { other, metadata, weight_map };

  void take_section(const JsonEvent& e) {
    section_ = e.key == "weight_map" ? Section::weight_map
               : e.key == "metadata" ? Section::metadata
                                     : Section::other;
    if (section_ != Section::weight_map) return;
    if (std::exchange(had_weight_map_, true)) refuse("weight_map is there twice");
    if (e.kind != Kind::object) refuse("weight_map must be an object of tensor and file names");
  }

  void take_tensor(const JsonEvent& e) {
    std::string tensor = printable(e.key);
    if (e.kind != Kind::string) {
      refuse(fmt::format("the file name of tensor {} must be a string", tensor));
    }
    auto shard = shards_.find(e.text);
    if (shard == shards_.end()) {
      if (std::string_view fault = path_fault(e.text); !fault.empty()) {
        refuse(fmt::format("tensor {}: the file name '{}' {}; refused without opening it", tensor,
                           printable(e.text), fault));
      }
      shard = shards_.emplace(e.text, std::vector<std::string>()).first;
    }
    shard->second.emplace_back(e.key);
  }

  [[noreturn]] void refuse(const std::string& fault) const {
    fail(ErrorKind::refused, "{}: {}", where_, fault);
  }

  const std::string& where_;
  Section section_ = Section::other;
  bool had_weight_map_ = false;
  std::map<std::string, std::vector<std::string>, std::less<>> shards_;  // file -> tensors
  std::optional<uint64_t> total_size_;
};

ShardIndex IndexEntries::finish() && {
  if (!had_weight_map_) refuse("has no weight_map");
  if (shards_.empty()) refuse("weight_map is empty");
  ShardIndex index{.shards = {}, .total_size = total_size_};
  std::unordered_set<std::string_view> names;
  for (auto& [file, tensors] : shards_) {
    std::sort(tensors.begin(), tensors.end());
    Shard& shard = index.shards.emplace_back(Shard{file, std::move(tensors)});
    for (const std::string& name : shard.tensors) {
      if (names.insert(name).second) continue;
      refuse(fmt::format("tensor {} is there twice in weight_map", printable(name)));
    }
  }
  return index;
}

}  // namespace

ShardIndex parse_shard_index(std::string_view text, const std::string& where) {
  IndexEntries entries(where);
  read_json_events(text, where, kMaxDepth, [&](const JsonEvent& e) { entries.take(e); });
  return std::move(entries).finish();
}

}  // namespace sluice::io
