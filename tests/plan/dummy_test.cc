// Dummy weights: the tensors that a config asks for.
#include "src/plan/dummy.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "io/dummy.h"
#include "quant/float8.h"
#include "src/base/error.h"
#include "src/plan/bind.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The elements of the tensors that a model takes.
int64_t bound_elements(const fs::path& directory, const io::CheckpointIndex& index) {
  Model model = build_model(directory, {}, &index);
  const Binding binding = bind_tensors(model, index);
  const std::set<std::string> ignored(binding.ignored.begin(), binding.ignored.end());
  int64_t elements = 0;
  for (const io::StoredTensor& tensor : index.tensors())
    if (!ignored.contains(tensor.name)) elements += tensor.shape.elements().value();
  return elements;
}

TEST(Dummy, ModelsOfAllFamiliesTakeAsManyElementsAsTheirFilesHave) {
  int models = 0;
  for (const auto& entry : fs::directory_iterator(test::source_dir() / "tests/data/models")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const std::unique_ptr<ModelSource> source = open_model(entry.path());
    const io::CheckpointIndex dummy = dummy_index(*source);
    EXPECT_EQ(bound_elements(entry.path(), dummy), bound_elements(entry.path(), source->index()));
    ++models;
  }
  EXPECT_GT(models, 50);
}

TEST(Dummy, BytesDependOnTheirPlaceAlone) {
  std::array<std::byte, 301> all{}, parts{};
  io::dummy_bytes(1'000'003, all);
  for (size_t at = 0, next = 1; at < parts.size(); at += next, next = next * 3 % 17 + 1) {
    next = std::min(next, parts.size() - at);
    io::dummy_bytes(1'000'003 + at, std::span(parts).subspan(at, next));
  }
  EXPECT_EQ(all, parts);
}

TEST(Dummy, NumbersAreSmallAndSpreadEvenly) {
  std::vector<uint16_t> numbers(1 << 16);
  io::dummy_bytes(1 << 20, std::as_writable_bytes(std::span(numbers)));
  double sum = 0, squares = 0;
  for (uint16_t bits : numbers) {
    const float x = bf16_to_float(bits);
    ASSERT_LE(std::abs(x), 0.001f);
    sum += x;
    squares += x * x;
  }
  const auto count = static_cast<double>(numbers.size());
  EXPECT_NEAR(sum / count, 0, 1e-5);
  EXPECT_NEAR(std::sqrt(squares / count), 0.001 / std::sqrt(3), 1e-5);
}

TEST(Dummy, AQuantizedConfigIsRefused) {
  const test::TempDir dir;
  Json config = test::tiny_config();
  config["quantization_config"] = {{"quant_method", "fp8"}};
  test::write_file(dir.path() / "config.json", config.dump());
  try {
    dummy_index(*open_model(dir.path()));
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    EXPECT_NE(std::string(e.what()).find("quantization_config"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
