// The spill cache of matrices that cannot be streamed from the checkpoint: whatever becomes of its
// file, the bits stay the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/load/spill_directory.h"
#include "src/plan/spill_layout.h"
#include "tests/engine/golden.h"
#include "tests/engine/placed.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRowTokens = 3;
const std::vector<int32_t> kRowPrompt{1, 5, 9, 2};

class NeededSpillTest : public testing::TestWithParam<std::string> {
 protected:
  fs::path checkpoint() const {
    return test::model_in(test::source_dir() / "tests/data" / GetParam());
  }
  fs::path cache() const { return spill_.path() / "spill"; }
  ModelOptions options() const {
    ModelOptions options;
    options.model = checkpoint();
    options.threads = 2;
    options.spill.directories = {cache()};
    options.place =
        parse_place_rules(GetParam().ends_with("gpt2_noprefix") ? "h=disk" : "layers=disk");
    return options;
  }
  static std::unique_ptr<test::Ready> loaded(const ModelOptions& options) {
    return std::make_unique<test::Ready>(
        options, [](const Planner& planner) { return planner.run_shape(16, 8, 8); });
  }
  static std::vector<std::vector<float>> outcome(test::Ready& ready) {
    test::Outcome out = test::run_prompt(ready.model, kRowPrompt, kRowTokens, 512);
    EXPECT_LE(ready.planner.machine().ledger().peak(Place::host), ready.model.memory_plan().peak());
    out.logits.emplace_back(out.greedy.begin(), out.greedy.end());
    return out.logits;
  }
  std::vector<std::vector<float>> outcome() const { return outcome(*loaded(options())); }
  std::vector<std::vector<float>> resident() const {
    ModelOptions options = this->options();
    options.place.clear();
    return outcome(*loaded(options));
  }
  fs::path file() const {
    const std::vector<SpillFileInfo> files = list_spill_files(cache());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? fs::path() : files.front().path;
  }
  // Writes to the file that is there, as damage does.
  static void put(const fs::path& file, uint64_t at, const std::string& bytes) {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at));
    out << bytes;
  }
  static void flip(const fs::path& file, uint64_t at) {
    put(file, at, std::string(1, static_cast<char>(test::read_file(file)[at] ^ 0x10)));
  }

  test::TempDir spill_;
};

TEST_P(NeededSpillTest, DamageIsNeverUsed) {
  const auto expected = resident();
  EXPECT_FALSE(fs::exists(cache())) << "nothing is written for what stays in memory";
  EXPECT_EQ(outcome(), expected);
  const fs::path spill = file();
  const std::string good = test::read_file(spill);
  const uint64_t size = good.size();
  test::Random random("damaged spill");
  auto somewhere = [&] {
    return static_cast<uint64_t>(random.between(kSpillHeaderBytes, static_cast<int64_t>(size) - 1));
  };
  using Damage = std::function<void()>;
  constexpr size_t kFlips = 4;  // some of padding, which is not protected
  std::vector<Damage> all(kFlips, [&] { flip(spill, somewhere()); });
  all.push_back([&] { flip(spill, 100); });       // the header
  all.push_back([&] { flip(spill, size - 1); });  // the index
  all.push_back([&] { put(spill, size / 2, std::string(size - size / 2, '\0')); });
  all.push_back(
      [&] { put(spill, kSpillHeaderBytes, good.substr(kSpillHeaderBytes + 4096, 4096)); });
  all.push_back([&] { put(spill, kSpillHeaderBytes, std::string(8192, '\xff')); });  // NaN
  all.push_back([&] { fs::resize_file(spill, size - 1); });
  all.push_back([&] { fs::resize_file(spill, size + 1); });
  for (size_t i = 0; i < all.size(); ++i) {
    all[i]();
    ModelOptions later = options();
    later.spill.verify = i % 3 == 2;
    EXPECT_EQ(outcome(*loaded(later)), expected) << "damage " << i;
    if (i < kFlips) test::write_file(file(), good);
    EXPECT_TRUE(test::read_file(file()) == good) << "damage " << i << " is mended";
  }
}

// The same while the file is read.
TEST_P(NeededSpillTest, DamageDuringARunIsMended) {
  const auto expected = outcome();
  auto ready = loaded(options());
  EXPECT_EQ(outcome(*ready), expected);
  const std::string good = test::read_file(file());
  put(file(), kSpillHeaderBytes, std::string(good.size() - kSpillHeaderBytes, '\1'));
  auto beside = loaded(options());  // has it made again; the first reads on in what it has open
  EXPECT_EQ(outcome(*ready), expected);
  EXPECT_EQ(outcome(*beside), expected);
  EXPECT_EQ(outcome(*ready), expected);
  EXPECT_TRUE(test::read_file(file()) == good);
}

TEST_P(NeededSpillTest, WhatCannotBeMendedEndsTheRunAndNotTheNext) {
  const auto expected = outcome();
  auto ready = loaded(options());
  const fs::path spill = file();
  const uint64_t size = fs::file_size(spill);
  put(spill, kSpillHeaderBytes, std::string(size - kSpillHeaderBytes, '\1'));
  fs::path part = spill;
  part += ".part";
  fs::create_directory(part);  // in the place of the file that is to be written
  try {
    // One pass may have been read ahead.
    for (int pass = 0; pass < 2; ++pass) outcome(*ready);
    FAIL() << "of damaged weights";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::runtime);
    EXPECT_NE(std::string(e.what()).find(spill.string()), std::string::npos) << e.what();
  }
  fs::remove(part);
  ready.reset();
  EXPECT_EQ(outcome(), expected);
}

TEST_P(NeededSpillTest, AFileWithoutChecksumsIsNotTrusted) {
  const auto expected = outcome();
  const std::string good = test::read_file(file());
  Json header = Json::parse(good.substr(0, good.find('\0')));
  header["index_bytes"] = 0;
  header["index_checksum"] = "";
  std::string text = header.dump();
  text.resize(kSpillHeaderBytes);
  test::write_file(file(), text + good.substr(kSpillHeaderBytes));
  flip(file(), kSpillHeaderBytes + 5000);
  EXPECT_EQ(outcome(), expected);
  EXPECT_TRUE(test::read_file(file()) == good);
}

TEST_P(NeededSpillTest, VerifyFindsWeightsThatChangedUnseen) {
  test::TempDir copied;
  fs::copy(test::source_dir() / "tests/data" / GetParam(), copied.path() / "model",
           fs::copy_options::recursive);
  ModelOptions o = options();
  o.model = copied.path() / "model";
  const auto before = outcome(*loaded(o));
  // Other bytes with the same size, inode and time.
  const io::CheckpointIndex index = io::open_checkpoint(o.model);
  const auto stored = std::ranges::find_if(index.tensors(), [](const io::StoredTensor& t) {
    return t.name.ends_with("qweight") || t.name.ends_with("c_fc.weight");
  });
  ASSERT_NE(stored, index.tensors().end());
  const fs::path weights = index.files()[stored->file].path;
  const auto time = fs::last_write_time(weights);
  flip(weights, stored->offset + 2);
  fs::last_write_time(weights, time);
  EXPECT_EQ(outcome(*loaded(o)), before) << "which nobody could know";
  o.spill.verify = true;
  const auto after = outcome(*loaded(o));
  EXPECT_NE(after, before);
  ModelOptions in_memory = o;
  in_memory.place.clear();
  EXPECT_EQ(after, outcome(*loaded(in_memory)));
}

INSTANTIATE_TEST_SUITE_P(Models, NeededSpillTest,
                         testing::Values("formats/gptq_int4_g32_actorder", "formats/gptq_int3",
                                         "models/gpt2_noprefix"),
                         [](const auto& model) {
                           return model.param.substr(model.param.find('/') + 1);
                         });

}  // namespace
}  // namespace sluice
