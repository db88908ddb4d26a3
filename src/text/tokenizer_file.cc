#include "src/text/tokenizer_file.h"

#include <system_error>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxFileBytes = 1 * GiB;

// Takes the vocabulary and the merges out of the stream of parser events.
class Capture {
 public:
  using Event = Json::parse_event_t;

  explicit Capture(TokenizerFile& file) : file_(file) {}

  bool take(int depth, Event event, Json& value) {
    if (event == Event::key && depth <= 2) {
      (depth == 1 ? section_ : field_) = value.get_ref<const std::string&>();
      if (depth == 1) field_.clear();
      return true;
    }
    if (section_ != "model" || depth < 2) return true;
    if (field_ == "vocab") return vocabulary_event(depth, event, value);
    if (field_ == "merges") return merges_event(depth, event, value);
    return true;
  }

 private:
  bool vocabulary_event(int depth, Event event, const Json& value) {
    // The last one counts, also where an object came first and then something else.
    if (depth == 2 && event != Event::object_end && event != Event::array_end) {
      file_.has_vocabulary = event == Event::object_start;
      file_.has_scores = event == Event::array_start;
      file_.tokens = {};
      file_.ids.clear();
      file_.scores.clear();
    }
    if (file_.has_scores) return score_event(depth, event, value);
    if (depth == 2 || !file_.has_vocabulary) return true;
    if (depth == 3 && event == Event::key) {
      file_.tokens.push_back(value.get_ref<const std::string&>());
      return false;
    }
    std::string_view token = file_.tokens[file_.tokens.size() - 1];
    if (event != Event::value || !value.is_number_integer()) {
      fail(ErrorKind::refused, "{}: the id of token '{}' must be an integer", kTokenizerFile,
           token);
    }
    bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t{kMaxTokenId}
                                           : value.get<int64_t>() >= 0;
    if (!fits) {
      fail(ErrorKind::refused, "{}: token '{}' has id {}, but an id must lie between 0 and {}",
           kTokenizerFile, token, value.dump(), kMaxTokenId);
    }
    file_.ids.push_back(value.get<int32_t>());
    return false;
  }

  bool score_event(int depth, Event event, const Json& value) {
    if (depth == 2 || depth > 3 || event == Event::array_start) {
      if (depth > 4) bad_score();
      return true;
    }
    const bool valid = event == Event::array_end && value.size() == 2 && value[0].is_string() &&
                       value[1].is_number() && std::ssize(file_.ids) <= kMaxTokenId;
    if (!valid) bad_score();
    file_.ids.push_back(static_cast<int32_t>(file_.ids.size()));
    file_.tokens.push_back(value[0].get_ref<const std::string&>());
    file_.scores.push_back(value[1].get<double>());
    return false;
  }

  bool merges_event(int depth, Event event, const Json& value) {
    if (depth == 2 && event != Event::array_end) file_.has_merges = event == Event::array_start;
    if (depth == 2 || !file_.has_merges || (depth == 3 && event == Event::array_start)) return true;
    if (depth == 3 && event == Event::value && value.is_string()) {
      split_merge(value.get_ref<const std::string&>());
    } else if (depth == 3 && event == Event::array_end) {
      if (value.size() != 2 || !value[0].is_string() || !value[1].is_string()) bad_merge();
      file_.merges.push_back(value[0].get_ref<const std::string&>());
      file_.merges.push_back(value[1].get_ref<const std::string&>());
    } else if (depth != 4 || event != Event::value) {
      bad_merge();
    } else {
      return true;
    }
    return false;
  }

  // "left right", as files had it before 2024. A line of merges.txt may have slipped in.
  void split_merge(const std::string& merge) {
    if (merge.starts_with("#version")) return;
    size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) bad_merge();
    file_.merges.push_back(std::string_view(merge).substr(0, space));
    file_.merges.push_back(std::string_view(merge).substr(space + 1));
  }

  [[noreturn]] void bad_score() const {
    fail(ErrorKind::refused, "{}: model.vocab: token {} must have a score, as [\"a\", -1.5]",
         kTokenizerFile, file_.ids.size());
  }

  [[noreturn]] void bad_merge() const {
    fail(ErrorKind::refused, "{}: merge {} must have two parts, as [\"a\", \"b\"] or \"a b\"",
         kTokenizerFile, file_.merges.size() / 2);
  }

  TokenizerFile& file_;
  std::string section_;  // the last key at the top
  std::string field_;    // the last key inside of it
};

}  // namespace

void TokenizerFile::need_vocabulary() const {
  if (!has_vocabulary)
    fail(ErrorKind::refused, "{}: model.vocab must be an object of tokens and ids", kTokenizerFile);
}

std::optional<std::string> read_text_file(const io::ModelDirectory& directory,
                                          std::string_view name) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(directory.path() / name, ignored))) {
    return std::nullopt;
  }
  return directory.read(name, kMaxFileBytes);
}

Json read_json_file(const io::ModelDirectory& directory, std::string_view name) {
  const std::optional<std::string> text = read_text_file(directory, name);
  Json json = text ? parse_json(*text, name) : Json::object();
  JsonFields(json, std::string(name));  // refuses what is no object
  return json;
}

TokenizerFile parse_tokenizer_file(const std::string& json) {
  TokenizerFile file;
  Capture capture(file);
  file.config =
      parse_large_json(json, kTokenizerFile, [&](int depth, Capture::Event event, Json& value) {
        return capture.take(depth, event, value);
      });
  return file;
}

}  // namespace sluice
