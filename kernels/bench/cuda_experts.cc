#include "kernels/bench/cuda_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/bench/cuda_timing.h"
#include "kernels/cuda/experts.h"

namespace sluice::bench {
namespace {

constexpr int64_t kCount = 128, kUsed = 8, kHidden = 2048, kWidth = 768;
constexpr int64_t kMostRows = 2048, kPairs = kMostRows * kUsed;
constexpr int64_t kSets = 16;  // choices in turn, so that no cache has what is read next
constexpr int64_t kUpRows = 2 * kWidth;

struct Format {
  const char* name;
  WeightFormat format;
};
constexpr Format kFormats[] = {
    {"none", {DType::bf16, WeightLayout::packed, ScaleKind::none}},
    {"fp8", {DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row}},
    {"int8", {DType::i8, WeightLayout::packed, ScaleKind::per_row, true}},
};

class ExpertBench {
 public:
  explicit ExpertBench(Device& device) : device_(device), stream_(device.stream()) {
    const uint64_t sizes[] = {uint64_t{kCount} * kUpRows * kHidden * 2,
                              uint64_t{kCount} * kHidden * kWidth * 2,
                              uint64_t{kMostRows} * kHidden * 2,
                              uint64_t{kPairs} * kWidth * 2,
                              uint64_t{kPairs} * kHidden * sizeof(float),
                              uint64_t{kPairs} * sizeof(float),
                              uint64_t{kPairs} * kSets * sizeof(int32_t),
                              3 * uint64_t{kPairs} * sizeof(cuda::ExpertTile)};
    uint64_t all = 0;
    for (uint64_t size : sizes) all += Buffer::charged_bytes(size);
    device_.reserve(all);
    for (uint64_t size : sizes)
      memory_.push_back(device_.memory(ledger_, Use::workspace, "bench", size, Buffer::Touch::now));
    for (size_t i : {0, 1}) fill(*stream_, memory_[i].bytes(), 0x87878787, 0x38383838);
    fill(*stream_, memory_[5].bytes(), 0, 0x3b800000);
    for (size_t i : {2, 3}) fill(*stream_, memory_[i].bytes(), 0x83ff83ff, 0x3c003c00);
    choose();
  }

  void few(const Format& f, const std::function<void(const ExpertRate&)>& found) {
    const ExpertWeights w = weights(f.format);
    const int64_t cell = cell_cols(f.format.dtype);
    for (int64_t rows : {1, 4, 16}) {
      const cuda::ExpertInput x{
          .rounded = {at<uint16_t>(2), rows, kHidden, scales(f), false, cell}};
      const cuda::Bf16Rows inner{at<uint16_t>(3), rows * kUsed, kWidth, scales(f), false, cell};
      const cuda::ExpertInner to{
          .rounded = {at<uint16_t>(3), rows * kUsed, kWidth, {}, false, cell}};
      const Tensor y{memory_[4].data(), DType::f32, rows, kHidden, kHidden};
      const auto each = static_cast<double>(rows * kUsed * kWidth * kHidden * bytes_of(f));
      const double up = seconds_of([&](const ExpertChoices& choices) {
        cuda::experts_few_up(x, w, kUsed, choices, rows, to, stream_->handle());
      });
      const double down = seconds_of([&](const ExpertChoices& choices) {
        cuda::experts_few_down(inner, w, kUsed, choices, {}, y, stream_->handle());
      });
      found({fmt::format("{} rows, up, {}", rows, f.name), 2 * each / up, true});
      found({fmt::format("{} rows, down, {}", rows, f.name), each / down, true});
    }
  }

  void many(const Format& f, const std::function<void(const ExpertRate&)>& found) {
    const ExpertWeights w = weights(f.format);
    for (int64_t rows : {int64_t{512}, kMostRows}) {
      const int64_t pairs = rows * kUsed;
      cuda::ExpertLists lists{at<int32_t>(7), at<int32_t>(7) + kPairs,
                              at<cuda::ExpertTile>(7) + kPairs};
      lists.tile_rows = cuda::expert_tile_rows(pairs, kCount);
      lists.most_tiles = cuda::most_expert_tiles(pairs, kCount, lists.tile_rows);
      const cuda::Bf16Rows x{at<uint16_t>(2), rows, kHidden, scales(f)};
      const cuda::Bf16Rows inner{at<uint16_t>(3), pairs, kWidth, scales(f)};
      const cuda::ExpertInner to{.rounded = {at<uint16_t>(3), pairs, kWidth, {}}};
      const Tensor out{memory_[4].data(), DType::f32, pairs, kHidden, kHidden};
      const auto each = 2 * static_cast<double>(pairs * kWidth * kHidden);
      const double sort = seconds_of([&](const ExpertChoices& choices) {
        cuda::make_expert_lists(choices.experts, rows, kUsed, kCount, lists, stream_->handle());
      });
      const double up = seconds_of(
          [&](const ExpertChoices&) { cuda::experts_many_up(x, w, lists, to, stream_->handle()); });
      const double down = seconds_of([&](const ExpertChoices&) {
        cuda::experts_many_down(inner, w, lists, 0, out, stream_->handle());
      });
      found({fmt::format("{} rows, lists", rows), static_cast<double>(pairs) * 4 / sort, true});
      found({fmt::format("{} rows, up, {}", rows, f.name), 2 * each / up});
      found({fmt::format("{} rows, down, {}", rows, f.name), each / down});
    }
  }

 private:
  template <class T>
  T* at(size_t memory) const {
    return reinterpret_cast<T*>(memory_[memory].data());
  }
  static int64_t bytes_of(const Format& f) { return dtype_bytes(f.format.dtype); }
  cuda::InputScales scales(const Format& f) const {
    return f.format.quantized_input ? cuda::InputScales{at<float>(5)} : cuda::InputScales{};
  }
  ExpertWeights weights(const WeightFormat& format) const {
    auto matrix = [&](size_t memory, int64_t rows, int64_t cols) {
      return ExpertMatrix{.first = weight_in(format, rows, cols, memory_[memory].data()),
                          .step = static_cast<int64_t>(storage_bytes(format, rows, cols))};
    };
    ExpertWeights w{.count = kCount,
                    .width = kWidth,
                    .up = matrix(0, kUpRows, kHidden),
                    .down = matrix(1, kHidden, kWidth),
                    .second = kWidth};
    return w;
  }

  void choose() {
    std::mt19937 random(5);
    std::vector<int32_t> all(kCount), choices;
    std::iota(all.begin(), all.end(), 0);
    for (int64_t row = 0; row < kMostRows * kSets; ++row) {
      std::ranges::shuffle(all, random);
      choices.insert(choices.end(), all.begin(), all.begin() + kUsed);
      std::sort(choices.end() - kUsed, choices.end());
    }
    stream_->copy(memory_[6].data(), reinterpret_cast<const std::byte*>(choices.data()),
                  choices.size() * sizeof(int32_t));
    stream_->synchronize();
  }
  template <class Body>
  double seconds_of(const Body& body) {
    int64_t turn = 0;
    return seconds(*stream_, [&] {
      body(ExpertChoices{at<int32_t>(6) + turn++ % kSets * kPairs, at<float>(5)});
    });
  }

  Ledger ledger_;
  Device& device_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<Buffer> memory_;  // up, down, x, inner, outputs, weights, choices, lists
};

}  // namespace

void expert_rates(Device& device, const std::function<void(const ExpertRate&)>& found) {
  ExpertBench bench(device);
  for (const Format& f : kFormats) {
    bench.few(f, found);
    bench.many(f, found);
  }
}

}  // namespace sluice::bench
