// cuda_bench [--json]: prompts' linear layers of a Llama 3 8B on the GPU, rounding of the input
// included, beside the fastest product of E4M3 codes that cuBLASLt has for the shape.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/open_cuda.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

struct Layer {
  const char* name;
  int64_t rows, cols;
};
constexpr Layer kLayers[] = {
    {"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};
constexpr int64_t kTokens[] = {512, 2048};
constexpr int64_t kMostTokens = 2048, kMostRows = 28672, kMostCols = 14336;
constexpr uint64_t kMostWeight = uint64_t{28672} * 4096 * 2;
constexpr int kRuns = 20;

struct Scheme {
  const char* name;
  WeightFormat format;
};
constexpr Scheme kSchemes[] = {
    {"none", {DType::bf16, WeightLayout::rows, ScaleKind::none}},
    {"fp8", {DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_row}},
    {"fp8_dynamic", {DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_row, true}},
    {"fp8_dynamic_per_block",
     {DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_block, true, true}},
};

class Bench {
 public:
  explicit Bench(Backend& backend)
      : device_(backend.device()),
        stream_(device_.stream()),
        fastest_(cuda::load_cublaslt(cuda::GemmSearch::fastest)) {
    WorkspaceNeeds needs{kMostTokens, kMostCols, 128};
    const WorkspaceBytes bytes = backend.kernels_bytes(needs);
    const uint64_t sizes[] = {kMostWeight,
                              uint64_t{kMostTokens} * kMostCols * sizeof(float),
                              uint64_t{kMostTokens} * kMostRows * sizeof(float),
                              uint64_t{kMostRows} * kMostCols / kScaleBlock * sizeof(float),
                              bytes.device,
                              cuda::kGemmWorkspace};
    uint64_t all = 0;
    for (uint64_t size : sizes) all += Buffer::charged_bytes(size);
    device_.reserve(all);
    for (uint64_t size : sizes)
      memory_.push_back(device_.memory(ledger_, Use::workspace, "bench", size, Buffer::Touch::now));
    host_ = Buffer(ledger_, Use::workspace, "bench", bytes.host, Buffer::Touch::now);
    kernels_ = backend.kernels(Compute::bf16, needs, *stream_, {memory_[4].bytes(), host_.bytes()});
    fill();
  }

  // Operations a second.
  double ours(const Layer& layer, int64_t tokens, const WeightFormat& format) {
    Weight w{format, layer.rows, layer.cols, memory_[0].data(), scales()};
    if (format.scales == ScaleKind::none) w.scales = nullptr;
    const Tensor x = matrix(1, tokens, layer.cols), y = matrix(2, tokens, layer.rows);
    return rate(layer, tokens, [&] { kernels_->linear(x, w, nullptr, y); });
  }
  // 0: it has none.
  double best_of_library(const Layer& layer, int64_t tokens) {
    if (fastest_ == nullptr) return 0;
    const auto* codes = reinterpret_cast<const uint8_t*>(memory_[0].data());
    const cuda::E4M3Matrix x{codes, tokens, layer.cols, scales()};
    const cuda::E4M3Matrix w{codes, layer.rows, layer.cols, scales()};
    const Tensor y = matrix(2, tokens, layer.rows);
    if (fastest_->product_of(x, w, y) == cuda::E4M3Product::none) return 0;
    return rate(layer, tokens,
                [&] { fastest_->multiply_e4m3(x, w, y, memory_[5].bytes(), stream_->handle()); });
  }

 private:
  float* scales() const { return reinterpret_cast<float*>(memory_[3].data()); }
  Tensor matrix(size_t memory, int64_t rows, int64_t cols) const {
    return {memory_[memory].data(), DType::f32, rows, cols, cols};
  }

  // Random bits of finite numbers between 2^-8 and 2: a GPU's clock depends on them.
  void fill() {
    std::vector<uint32_t> words(4 * MiB);
    uint32_t state = 2463534242;
    auto next = [&] {
      state ^= state << 13, state ^= state >> 17, state ^= state << 5;
      return state;
    };
    auto copy = [&](const Buffer& to) {
      const uint64_t part = words.size() * 4;
      for (uint64_t at = 0; at < to.bytes().size(); at += part)
        stream_->copy(to.data() + at, reinterpret_cast<const std::byte*>(words.data()),
                      std::min(part, to.bytes().size() - at));
      stream_->synchronize();
    };
    for (uint32_t& word : words) word = (next() & 0x87878787) | 0x38383838;
    copy(memory_[0]);
    for (uint32_t& word : words) word = (next() & 0x83ffffff) | 0x3c000000;
    copy(memory_[1]);
    for (uint32_t& word : words) word = 0x3b800000;
    copy(memory_[3]);
  }

  double rate(const Layer& layer, int64_t tokens, const std::function<void()>& body) {
    for (int i = 0; i < 3; ++i) body();
    stream_->synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i) body();
    stream_->synchronize();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return 2.0 * static_cast<double>(tokens * layer.rows * layer.cols) * kRuns / taken.count();
  }

  Ledger ledger_;
  Device& device_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<cuda::Gemm> fastest_;
  std::vector<Buffer> memory_;  // weight, x, y, scales, the kernels' and the library's scratch
  Buffer host_;
  std::unique_ptr<Kernels> kernels_;
};

int run(bool json) {
  const std::unique_ptr<Backend> backend = open_cuda(0);
  Bench bench(*backend);
  nlohmann::json all;
  for (int64_t tokens : kTokens) {
    for (const Layer& layer : kLayers) {
      const double best = bench.best_of_library(layer, tokens);
      for (const Scheme& scheme : kSchemes) {
        const double rate = bench.ours(layer, tokens, scheme.format);
        const double ratio = best > 0 ? rate / best : 0;
        all[fmt::format("{} rows of {}, {}", tokens, layer.name, scheme.name)] = {
            {"tflops", rate / 1e12}, {"best_e4m3_tflops", best / 1e12}, {"ratio", ratio}};
        if (!json)
          fmt::print("{:5} rows  {:8} {:22} {:7.1f} TFLOP/s  {:5.2f} of cuBLASLt's best {:.1f}\n",
                     tokens, layer.name, scheme.name, rate / 1e12, ratio, best / 1e12);
      }
    }
  }
  if (json) fmt::print("{}\n", all.dump(2));
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::run(argc > 1 && std::string_view(argv[1]) == "--json");
  } catch (const sluice::Error& e) {
    fmt::print(stderr, "cuda_bench: {}\n", e.what());
    return 1;
  }
}
