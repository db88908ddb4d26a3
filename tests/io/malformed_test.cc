// Every case of the shared collection of broken checkpoints that concerns this room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoint/gguf.h"
#include "io/checkpoint/index.h"
#include "src/base/json.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

CheckpointIndex open_any(const fs::path& model) {
  if (!fs::exists(model / "model.gguf")) {
    CheckpointIndex index = open_checkpoint(model);
    for (const AbsentTensors& absent : index.absent()) index.refuse_absent(absent.names.front());
    return index;
  }
  GgufCheckpoint gguf = open_gguf(model / "model.gguf");
  return {std::move(gguf.files), std::move(gguf.tensors), {}};
}

void check_case(const fs::path& source) {
  SCOPED_TRACE(source.filename().string());
  Json manifest = parse_json(test::read_file(source / "manifest.json"), "manifest.json");
  test::TempDir dir;
  fs::create_directory(dir / "model");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source)) {
    fs::path target = dir / "model" / fs::relative(entry, source);
    // Files are written anew: copies would keep the mode of a read-only source.
    if (entry.is_directory()) {
      fs::create_directory(target);
    } else {
      test::write_file(target, test::read_file(entry));
    }
  }
  for (const Json& link : manifest.value("setup", Json::array())) {
    fs::create_symlink(link["target"].get<std::string>(),
                       dir / "model" / link["symlink"].get<std::string>());
  }

  std::string answer = "ok";
  std::string message;
  try {
    CheckpointIndex index = open_any(dir / "model");
    if (!index.warnings().empty()) answer = "warning";
    for (const std::string& warning : index.warnings()) message += warning + "\n";
  } catch (const Error& e) {
    answer = e.kind() == ErrorKind::refused ? "error" : "an Error of another kind";
    message = e.what();
  }
  testing::Test::RecordProperty(source.filename().string(), answer + ": " + message);

  std::string expect = manifest["expect"];
  bool fits = expect.find(answer) != std::string::npos || expect == "any_clean";
  // A file that may be accepted may get a warning; only a sound checkpoint gets none.
  if (answer == "warning" && expect == "error_or_ok") fits = true;
  if (answer == "an Error of another kind") fits = false;
  EXPECT_TRUE(fits) << "expected " << expect << ", answered " << answer << ": " << message;
  if (answer == "ok") return;
  for (const Json& word : manifest["message_should_mention"]) {
    EXPECT_THAT(message, testing::HasSubstr(word.get<std::string>()));
  }
}

// Architectures are decided by src/models.
bool is_architecture(std::string_view name) {
  return name.starts_with("gguf_arch_") || name == "gguf_no_architecture";
}

TEST(Malformed, EveryCaseIsAnsweredAsItsManifestSays) {
  fs::path cases = test::oracle_dir() / "malformed";
  if (test::oracle_dir().empty()) GTEST_SKIP() << "no folder of shared fixtures (SLUICE_ORACLE)";
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(cases)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("st_") && !name.starts_with("idx_") && !name.starts_with("control_") &&
        !name.starts_with("pkl_") && !name.starts_with("npz_") && !name.starts_with("zip_") &&
        name != "w_no_tensors" && (!name.starts_with("gguf_") || is_architecture(name))) {
      continue;
    }
    check_case(entry.path());
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace sluice::io
