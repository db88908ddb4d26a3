// A config, and the tensors of a checkpoint that it describes, to the plan of its matrices: stored
// formats meet types, shapes and small tensors that do not fit each other. config.json comes first,
// then a line for each tensor, "NAME TYPE 4x32", and perhaps its first bytes, behind "=".
#include "src/engine/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/dtype.h"
#include "src/base/json.h"
#include "src/base/strings.h"
#include "src/base/units.h"
#include "src/plan/lay_out.h"
#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

constexpr uint64_t kMostBytes = 1 * GiB;  // of the file, which is sparse

struct Tensors {
  std::string header = "{";
  std::vector<std::pair<uint64_t, std::string_view>> begins;  // of those whose bytes are given
  uint64_t bytes = 0;
};

std::optional<Shape> shape_of(std::string_view text) {
  Shape shape;
  while (!text.empty()) {
    const std::optional<int64_t> dim = parse_number<int64_t>(take_until(text, 'x'));
    if (!dim || *dim < 0 || !shape.push_back(*dim)) return std::nullopt;
  }
  return shape;
}

// Adds a tensor where it can be described at all.
void add_tensor(std::string_view line, Tensors& all) {
  const std::string_view name = take_until(line, ' '), type = take_until(line, ' '),
                         dims = take_until(line, ' ');
  const std::optional<Shape> shape = shape_of(dims);
  const std::optional<DType> dtype = parse_dtype(type);
  const std::optional<uint64_t> bytes =
      dtype && shape ? stored_bytes(*dtype, *shape) : std::nullopt;
  if (!bytes || *bytes > kMostBytes - all.bytes) return;
  const Json entry = {{"dtype", type},
                      {"shape", std::vector<int64_t>(shape->begin(), shape->end())},
                      {"data_offsets", {all.bytes, all.bytes + *bytes}}};
  all.header += fmt::format("{}{}:{}", all.header.size() > 1 ? "," : "",
                            Json(to_valid_utf8(name)).dump(), entry.dump());
  if (line.starts_with('=')) all.begins.emplace_back(all.bytes, line.substr(1, *bytes));
  all.bytes += *bytes;
}

void write_tensors(const std::filesystem::path& path, std::string_view lines) {
  Tensors all;
  while (!lines.empty()) add_tensor(take_until(lines, '\n'), all);
  all.header += "}";
  const uint64_t length = all.header.size(), start = sizeof(length) + length;
  test::write_file(
      path, std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + all.header);
  std::filesystem::resize_file(path, start + all.bytes);
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const auto& [at, bytes] : all.begins) {
    out.seekp(static_cast<std::streamoff>(start + at));
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
}

}  // namespace

FUZZ_TARGET(checkpoint) {
  std::string_view input = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "config.json", test::take_part(input));
  write_tensors(dir / "model.safetensors", input);
  return test::taken_or_refused([&] {
    Checkpoint checkpoint(dir.path(), true);
    lay_out(checkpoint.model(), checkpoint.index(), {});
  });
}
