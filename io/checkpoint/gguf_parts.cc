#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "io/checkpoint/gguf.h"
#include "io/checkpoint/places.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxParts = 65535;

// "NAME-00002-of-00003.gguf" in three.
struct PartName {
  std::string stem;
  int64_t number = 1;
  int64_t count = 1;

  std::string of(int64_t part) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count);
  }
};

std::optional<int64_t> digits(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

std::optional<PartName> parse_part_name(std::string_view file) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (file.size() <= kPattern.size()) return std::nullopt;
  const std::string_view stem = file.substr(0, file.size() - kPattern.size());
  const std::string_view tail = file.substr(stem.size());
  const auto number = digits(tail.substr(1, 5)), count = digits(tail.substr(10, 5));
  if (tail.substr(6, 4) != "-of-" || !tail.starts_with('-') || !tail.ends_with(".gguf") ||
      !number || !count || *number > *count)
    return std::nullopt;
  return PartName{std::string(stem), *number, *count};
}

// `number` counts from 0, as split.no does.
void check_part(const GgufHeader& header, uint32_t number, size_t count) {
  const std::string where = printable(header.file.path.string());
  const JsonFields fields(header.values, where);
  const int64_t no = fields.integer_or("split.no", 0, kMaxParts, 0);
  const int64_t of = fields.integer_or("split.count", 0, kMaxParts, 1);
  if (no == number && std::max<int64_t>(of, 1) == static_cast<int64_t>(count)) return;
  fail(
      ErrorKind::refused,
      "{}: split.no is {} and split.count {}, but by its name it is file {} of {}; a model's files "
      "must have names like NAME-{:05}-of-{:05}.gguf",
      where, no, of, number + 1, count, no + 1, std::max<int64_t>(of, 1));
}

void refuse_missing(const Places& places, const std::vector<std::string>& parts) {
  std::vector<std::string> missing;
  std::ranges::copy_if(parts, std::back_inserter(missing),
                       [&](const std::string& part) { return places.lack(part); });
  if (missing.empty()) return;
  fail(ErrorKind::refused, "{}: is not there ({} of the model's {} files are missing){}",
       printable((places.own() / missing.front()).string()), missing.size(), parts.size(),
       download_hint(places.own()));
}

void check_tensor_count(const GgufCheckpoint& all) {
  const std::string where = printable(all.header.file.path.string());
  const auto have = static_cast<int64_t>(all.tensors.size());
  const int64_t said =
      JsonFields(all.header.values, where).integer_or("split.tensors.count", 0, INT32_MAX, have);
  if (said != have) {
    fail(ErrorKind::refused, "{}: split.tensors.count is {}, but the {} files have {} tensors",
         where, said, all.files.size(), have);
  }
}

void append(GgufHeader& part, GgufCheckpoint& all) {
  for (StoredTensor& tensor : part.tensors) {
    tensor.file = static_cast<uint32_t>(all.files.size());
    all.tensors.push_back(std::move(tensor));
  }
  part.tensors.clear();
  all.files.push_back(part.file);
}

}  // namespace

GgufCheckpoint open_gguf(const ModelFile& file, std::span<const fs::path> mirrors) {
  const Places places(file.directory, mirrors);
  const std::optional<PartName> name = parse_part_name(file.name);
  std::vector<std::string> parts{file.name};
  if (name) {
    parts.clear();
    for (int64_t part = 1; part <= name->count; ++part) parts.push_back(name->of(part));
  }
  refuse_missing(places, parts);
  GgufCheckpoint all;
  for (const std::string& part : parts) {
    const auto number = static_cast<uint32_t>(all.files.size());
    GgufHeader header = places.read(part, number, all.copies, read_gguf_header);
    check_part(header, number, parts.size());
    append(header, all);
    if (number == 0) all.header = std::move(header);
  }
  check_tensor_count(all);
  if (all.tensors.empty())
    fail(ErrorKind::refused, "{}: holds no tensors", printable(file.path().string()));
  return all;
}

}  // namespace sluice::io
