// Ranks with a device each, which is emulated, and NCCL in the form of a library of our own.
#include "src/ranks/nccl.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/shared_library.h"
#include "tests/engine/on_ranks.h"
#include "tests/ranks/fake_nccl.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"
#include "tests/support/simt/emulated_backend.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::How;
using test::Outcome;

constexpr const char* kLibrary = SLUICE_FAKE_NCCL;
constexpr std::chrono::seconds kPatience{60};

std::unique_ptr<DeviceLink> join_fake(const Group& group, Device& device) {
  static const SharedLibrary library("a fake of NCCL", {kLibrary});
  FakeNcclUse use = nullptr;
  library.load(use, "fake_nccl_use");
  const test::FakeStreams streams{[](CUstream_st* stream, std::function<void()> work) {
                                    stream->owner->put(stream, std::move(work));
                                  },
                                  [](CUstream_st* stream) { stream->owner->synchronize(stream); }};
  use(&streams);
  return join_nccl(group, device, kPatience, kLibrary);
}

// A rank's device and kernels, and a tensor there.
class OnDevice {
 public:
  OnDevice(const Group& group, uint64_t bytes) {
    ledger_.set_budget(Place::device, UINT64_MAX);
    Device& device = backend_->device();
    const WorkspaceNeeds needs{.max_rows = 8};
    const WorkspaceBytes workspace = backend_->kernels_bytes(needs);
    const uint64_t gathered = DeviceGroup::bytes(group.rank().size);
    device.reserve(Buffer::charged_bytes(bytes) + Buffer::charged_bytes(gathered) +
                   Buffer::charged_bytes(workspace.device));
    const auto memory = [&](uint64_t size) {
      return device.memory(ledger_, Use::workspace, "test", size, Buffer::Touch::now);
    };
    memory_ = memory(bytes);
    gathered_ = memory(gathered);
    workspace_ = memory(workspace.device);
    host_.resize(workspace.host);
    stream_ = device.stream();
    kernels_ = backend_->kernels(Compute::f32, needs, *stream_, {workspace_.bytes(), host_});
    link_ = join_fake(group, device);
    group_.emplace(group, *link_, gathered_.bytes());
  }
  std::byte* data() const { return memory_.data(); }
  const Kernels& kernels() const { return *kernels_; }
  const Group& group() const { return *group_; }
  void put(const std::vector<float>& values) const {
    stream_->copy(data(), reinterpret_cast<const std::byte*>(values.data()),
                  values.size() * sizeof(float));
    stream_->synchronize();
  }
  std::vector<float> get(size_t count) const {
    std::vector<float> values(count);
    stream_->copy(reinterpret_cast<std::byte*>(values.data()), data(), count * sizeof(float));
    stream_->synchronize();
    return values;
  }

 private:
  std::unique_ptr<Backend> backend_ = simt::make_emulated_backend({});
  Ledger ledger_;
  Buffer memory_, gathered_, workspace_;
  std::vector<std::byte> host_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<DeviceLink> link_;
  std::optional<DeviceGroup> group_;
};

TEST(CudaRanks, SumsHaveTheOrderOfRanks) {
  constexpr int64_t kStride = 40;
  for (int size : {2, 3}) {
    for (const Tensor shape : {Tensor{nullptr, DType::f32, 5, 33, kStride},
                               Tensor{nullptr, DType::f32, 3, kStride, kStride}}) {
      SCOPED_TRACE(testing::Message() << size << " ranks, " << shape.cols << " columns");
      test::Random random("CudaRanks");
      std::vector<std::vector<float>> values(static_cast<size_t>(size));
      for (std::vector<float>& v : values)
        for (int64_t i = 0; i < shape.rows * kStride; ++i) v.push_back(random.normal());
      test::Meeting meeting(size);
      std::vector<std::jthread> ranks;
      for (int r = 0; r < size; ++r) {
        ranks.emplace_back([&, r] {
          const std::vector<float>& own = values[static_cast<size_t>(r)];
          const test::ThreadGroup host({r, size}, meeting);
          const OnDevice device(host, own.size() * sizeof(float));
          device.put(own);
          Tensor y = shape;
          y.data = device.data();
          device.group().sum(y, device.kernels());
          const std::vector<float> got = device.get(own.size());
          for (size_t i = 0; i < own.size(); ++i) {
            float expected = own[i];  // between rows nothing changes
            if (static_cast<int64_t>(i) % kStride < shape.cols) {
              expected = values.front()[i];
              for (size_t other = 1; other < values.size(); ++other) expected += values[other][i];
            }
            ASSERT_EQ(got[i], expected) << i;
          }
        });
      }
    }
  }
}

TEST(CudaRanks, AMissingLibraryIsSaidOnEveryRank) {
  test::Meeting meeting(2);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const test::ThreadGroup host({r, 2}, meeting);
      const auto backend = simt::make_emulated_backend({});
      const char* library = r == 0 ? kLibrary : "libnccl.so.none";
      try {
        join_nccl(host, backend->device(), kPatience, library);
        ADD_FAILURE();
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::usage);
        EXPECT_NE(std::string(e.what()).find("rank 1: several ranks on GPUs need libnccl.so.none"),
                  std::string::npos)
            << e.what();
      }
    });
  }
}

// Ranks that wait for one another in the library.
class CudaRanksJoining : public testing::Test {
 protected:
  CudaRanksJoining() { library_.load(hold_, "fake_nccl_hold"); }
  ~CudaRanksJoining() override { hold_(false, -1); }
  CudaRanksJoining(const CudaRanksJoining&) = delete;

  SharedLibrary library_{"a fake of NCCL", {kLibrary}};
  FakeNcclHold hold_ = nullptr;
};

TEST_F(CudaRanksJoining, ARankThatFailsSaysSoAtOnce) {
  hold_(true, 1);
  test::Meeting meeting(2);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const test::ThreadGroup host({r, 2}, meeting);
      const auto backend = simt::make_emulated_backend({});
      try {
        join_nccl(host, backend->device(), kPatience, kLibrary);
        EXPECT_EQ(r, 0);
      } catch (const Error& e) {
        EXPECT_EQ(r, 1);
        EXPECT_TRUE(host.is_broken());
        EXPECT_NE(std::string(e.what()).find("joining a group"), std::string::npos) << e.what();
      }
      if (r == 1) {
        hold_(false, -1);
        host.agree(nullptr);  // with rank 0, which a launcher would have ended
      }
    });
  }
}

TEST_F(CudaRanksJoining, RanksDoNotWaitForever) {
  hold_(true, -1);
  test::Meeting meeting(2);
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        const test::ThreadGroup host({r, 2}, meeting);
        const auto backend = simt::make_emulated_backend({});
        try {
          join_nccl(host, backend->device(), std::chrono::seconds(1), kLibrary);
          ADD_FAILURE();
        } catch (const Error& e) {
          EXPECT_NE(std::string(e.what()).find("have not met within 1 s"), std::string::npos)
              << e.what();
          EXPECT_TRUE(host.is_broken());
        }
      });
    }
  }
}

class CudaRanksModels : public testing::TestWithParam<const char*> {};

TEST_P(CudaRanksModels, GiveWhatTheCpuGives) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const fs::path model = test::bundled_model(GetParam());
  const test::GoldenFile file(model);
  const test::Golden golden = file.golden(0);
  How how{.backend = [] { return simt::make_emulated_backend({}); },
          .link = join_fake,
          .dtype = DtypeChoice::f32,
          .threads = 1};
  const Outcome outcome = test::run_on_ranks(model, golden.ids, 2, 2, how);
  file.expect_float32(outcome, golden);
}

INSTANTIATE_TEST_SUITE_P(Bundled, CudaRanksModels,
                         testing::Values("llama_rope_dynamic", "mixtral", "qwen3_5"));

// Stages pass rows on through host memory; the GPUs of each are a group of NCCL's.
TEST(CudaPipelines, HaveTheBitsOfOneStage) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const fs::path model = test::bundled_model("llama_rope_dynamic");
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
  for (int ranks : {1, 2}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks a stage");
    How how{.backend = [] { return simt::make_emulated_backend({}); },
            .dtype = DtypeChoice::f32,
            .threads = 1};
    if (ranks > 1)
      how.link = [ranks](const Group& all, Device& device) {
        return join_fake(PartGroup(all, {all.rank().rank / ranks * ranks, ranks}), device);
      };
    const Outcome whole = test::run_on_ranks(model, prompt, 2, ranks, how);
    how.stages = 2;
    how.chunk = 2;
    const Outcome stages = test::run_on_ranks(model, prompt, 2, 2 * ranks, how);
    EXPECT_EQ(stages.logits, whole.logits);
    EXPECT_EQ(stages.greedy, whole.greedy);
  }
}

}  // namespace
}  // namespace sluice
