#include "io/checkpoint/shard_index.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "io/checkpoint/json_events.h"
#include "io/file.h"
#include "src/base/error.h"
#include "src/base/json.h"

namespace sluice::io {
namespace {

using Kind = JsonEvent::Kind;

constexpr int kMaxIndexDepth = 32;
constexpr size_t kMaxFileNameBytes = 255;  // of one name in a directory: Linux's NAME_MAX

// The last value counts for a key that is there twice, as in Python.
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
    if (e.kind != Kind::object) refuse("weight_map must be an object of tensor and file names");
    had_weight_map_ = true;
    file_of_.clear();
  }

  void take_tensor(const JsonEvent& e) {
    if (e.kind != Kind::string)
      refuse(fmt::format("the file name of tensor {} must be a string", printable(e.key)));
    auto file = files_.find(e.text);
    if (file == files_.end()) {
      if (std::string_view fault = path_fault(e.text); !fault.empty()) {
        refuse(fmt::format("tensor {}: the file name '{}' {}; refused without opening it",
                           printable(e.key), printable(e.text), fault));
      }
      file = files_.emplace(e.text).first;
    }
    file_of_.insert_or_assign(std::string(e.key), &*file);
  }

  [[noreturn]] void refuse(const std::string& fault) const {
    fail(ErrorKind::refused, "{}: {}", where_, fault);
  }

  const std::string& where_;
  Section section_ = Section::other;
  bool had_weight_map_ = false;
  std::set<std::string, std::less<>> files_;
  std::unordered_map<std::string, const std::string*> file_of_;  // by tensor
  std::optional<uint64_t> total_size_;
};

ShardIndex IndexEntries::finish() && {
  if (!had_weight_map_) refuse("has no weight_map");
  if (file_of_.empty()) refuse("weight_map is empty");
  std::map<std::string_view, std::vector<std::string>> shards;
  while (!file_of_.empty()) {
    auto entry = file_of_.extract(file_of_.begin());
    shards[*entry.mapped()].push_back(std::move(entry.key()));
  }
  ShardIndex index{.shards = {}, .total_size = total_size_};
  for (auto& [file, tensors] : shards) {
    std::sort(tensors.begin(), tensors.end());
    index.shards.push_back({std::string(file), std::move(tensors)});
  }
  return index;
}

}  // namespace

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
    if (part.size() > kMaxFileNameBytes) return "is too long";
    if (part == "..") return "leaves the checkpoint's directory";
    if (part.empty() || part == ".") return "is not the plain name of a file";
    if (slash == std::string_view::npos) return "";
    name.remove_prefix(slash + 1);
  }
}

ShardIndex parse_shard_index(std::string_view text, const std::string& where) {
  IndexEntries entries(where);
  const std::optional<std::string> proper = json_of_python(text);
  read_json_events(proper ? *proper : text, where, kMaxIndexDepth,
                   [&](const JsonEvent& e) { entries.take(e); });
  return std::move(entries).finish();
}

}  // namespace sluice::io
