// cuda_bench [--json] [ceilings] [blocks] [experts] [products] [sweep]: what the GPU's memory, link
// and tensor cores give at best; products of few rows of GGUF's blocks, and of a layer's experts,
// beside the memory's rate;
// prompts' linear layers of a Llama 3 8B, rounding of the input included, beside the fastest
// product of E4M3 codes that cuBLASLt has for the shape; and the same layers of few rows, where the
// library's ways change, with what it makes of E4M3 there. Without names: all five.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "kernels/bench/cuda_ceilings.h"
#include "kernels/bench/cuda_experts.h"
#include "kernels/bench/cuda_timing.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/open_cuda.h"
#include "quant/groups.h"
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
constexpr Layer kSweptLayers[] = {kLayers[1], kLayers[3]};
constexpr int64_t kSweptTokens[] = {17, 31, 64, 127, 256, 257};
constexpr Layer kLargest = {"8192 x 8192", 8192, 8192};  // and rows of the largest product in bf16:
constexpr int64_t kLargestTokens = 4096;
constexpr int64_t kMostTokens = 2048, kMostRows = 28672, kMostCols = 14336;
constexpr uint64_t kMostWeight = uint64_t{28672} * 4096 * 2;

struct Scheme {
  const char* name;
  WeightFormat format;
};
constexpr Scheme kSchemes[] = {
    {"none", {DType::bf16, WeightLayout::packed, ScaleKind::none}},
    {"fp8", {DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row}},
    {"fp8_dynamic", {DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row, true}},
    {"fp8_dynamic_per_block",
     {DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_block, true, true}},
    {"int8", {DType::i8, WeightLayout::packed, ScaleKind::per_row, true}},
};

constexpr DType kBlocks[] = {DType::q4_0,      DType::q8_0,   DType::q2_k,  DType::q3_k,
                             DType::q4_k,      DType::q5_k,   DType::q6_k,  DType::e2m1_e8m0,
                             DType::e2m1_e4m3, DType::iq4_xs, DType::iq2_xs};
constexpr int64_t kFewTokens[] = {1, 16, 512};

class Bench {
 public:
  explicit Bench(Backend& backend)
      : device_(backend.device()),
        stream_(device_.stream()),
        library_(cuda::load_cublaslt()),
        fastest_(library_ == nullptr ? nullptr : cuda::load_cublaslt(cuda::GemmSearch::fastest)) {
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
    const auto [x, w, y] = codes(layer, tokens, false);
    if (fastest_->product_of(x, w, y) == cuda::E4M3Product::none) return 0;
    if (!fastest_->multiply_e4m3(x, w, y, memory_[5].bytes(), stream_->handle())) return 0;
    return rate(layer, tokens, [&] {
      return fastest_->multiply_e4m3(x, w, y, memory_[5].bytes(), stream_->handle());
    });
  }
  double best_bf16() {
    if (fastest_ == nullptr) return 0;
    auto matrix_of = [&](size_t memory, int64_t rows) {
      return cuda::Bf16Matrix{reinterpret_cast<const uint16_t*>(memory_[memory].data()), rows,
                              kLargest.cols};
    };
    return rate(kLargest, kLargestTokens, [&] {
      return fastest_->multiply(matrix_of(1, kLargestTokens), matrix_of(0, kLargest.rows),
                                matrix(2, kLargestTokens, kLargest.rows), memory_[5].bytes(),
                                stream_->handle());
    });
  }
  // Returns how the library offers to multiply codes, or "refused" where it then does not.
  std::string_view library_makes(const Layer& layer, int64_t tokens, bool by_block) {
    if (library_ == nullptr || (by_block && tokens % 4 != 0)) return "not asked";
    const auto [x, w, y] = codes(layer, tokens, by_block);
    const cuda::E4M3Product product = library_->product_of(x, w, y);
    if (product == cuda::E4M3Product::none) return "none";
    if (!library_->multiply_e4m3(x, w, y, memory_[5].bytes(), stream_->handle())) return "refused";
    return product == cuda::E4M3Product::sums ? "sums" : "scaled";
  }

 private:
  float* scales() const { return reinterpret_cast<float*>(memory_[3].data()); }
  Tensor matrix(size_t memory, int64_t rows, int64_t cols) const {
    return {memory_[memory].data(), DType::f32, rows, cols, cols};
  }

  struct Codes {
    cuda::E4M3Matrix x, w;
    Tensor y;
  };
  Codes codes(const Layer& layer, int64_t tokens, bool by_block) const {
    const auto* at = reinterpret_cast<const uint8_t*>(memory_[0].data());
    return {{at, tokens, layer.cols, scales(), by_block},
            {at, layer.rows, layer.cols, scales(), by_block},
            matrix(2, tokens, layer.rows)};
  }

  // Finite numbers between 2^-15 and 2.
  void fill() {
    bench::fill(*stream_, memory_[0].bytes(), 0x87878787, 0x38383838);
    bench::fill(*stream_, memory_[1].bytes(), 0x83ffffff, 0x3c000000);
    bench::fill(*stream_, memory_[3].bytes(), 0, 0x3b800000);
  }

  double rate(const Layer& layer, int64_t tokens, const std::function<void()>& body) {
    return 2.0 * static_cast<double>(tokens * layer.rows * layer.cols) /
           bench::seconds(*stream_, body);
  }

  Ledger ledger_;
  Device& device_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<cuda::Gemm> library_, fastest_;
  std::vector<Buffer> memory_;  // weight, x, y, scales, the kernels' and the library's scratch
  Buffer host_;
  std::unique_ptr<Kernels> kernels_;
};

struct Line {
  std::string name;
  nlohmann::json figures;
  std::string text;
};

// Each is printed as soon as it is known.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}
  void add(const Line& line) {
    all_[line.name] = line.figures;
    if (!json_) fmt::print("{:40} {}\n", line.name, line.text);
    std::fflush(stdout);
  }
  void end() const {
    if (json_) fmt::print("{}\n", all_.dump(2));
  }

 private:
  bool json_;
  nlohmann::json all_ = nlohmann::json::object();
};

void add_ceilings(Device& device, Report& report) {
  for (const auto& [name, rate] : bench::ceilings(device))
    report.add({name, {{"gb_per_second", rate / 1e9}}, fmt::format("{:.1f} GB/s", rate / 1e9)});
}

// Shares are of the rate at which a kernel reads memory.
void add_experts(Device& device, Report& report) {
  const double read = bench::ceilings(device).at("read by a kernel");
  bench::expert_rates(device, [&](const bench::ExpertRate& r) {
    const std::string name = "experts, " + r.name;
    if (!r.bytes) {
      return report.add(
          {name, {{"tflops", r.rate / 1e12}}, fmt::format("{:7.1f} TFLOP/s", r.rate / 1e12)});
    }
    const double share = r.rate / read;
    report.add({name,
                {{"gb_per_second", r.rate / 1e9}, {"share", share}},
                fmt::format("{:7.1f} GB/s  {:5.2f} of the memory's rate", r.rate / 1e9, share)});
  });
}

void add_blocks(Bench& bench, double read, Report& report) {
  const Layer& layer = kLayers[2];
  for (DType type : kBlocks) {
    const WeightFormat format{type, WeightLayout::rows, ScaleKind::none};
    const double bytes = static_cast<double>(layer.rows * grouped_row_bytes(format, layer.cols));
    for (int64_t tokens : kFewTokens) {
      const double rate = bench.ours(layer, tokens, format);
      const double seconds = 2.0 * static_cast<double>(tokens * layer.rows * layer.cols) / rate;
      const double share = bytes / seconds / read;
      report.add(
          {fmt::format("{} rows of {}, {}", tokens, layer.name, dtype_name(type)),
           {{"tflops", rate / 1e12}, {"gb_per_second", bytes / seconds / 1e9}, {"share", share}},
           fmt::format("{:7.1f} TFLOP/s  {:7.1f} GB/s  {:5.2f} of the memory's rate", rate / 1e12,
                       bytes / seconds / 1e9, share)});
    }
  }
}

void add_products(Bench& bench, Report& report) {
  const double bf16 = bench.best_bf16();
  report.add({fmt::format("{} rows of {}, fastest in bf16", kLargestTokens, kLargest.name),
              {{"tflops", bf16 / 1e12}},
              fmt::format("{:.1f} TFLOP/s", bf16 / 1e12)});
  for (int64_t tokens : kTokens) {
    for (const Layer& layer : kLayers) {
      const double best = bench.best_of_library(layer, tokens);
      for (const Scheme& scheme : kSchemes) {
        const double rate = bench.ours(layer, tokens, scheme.format);
        const double ratio = best > 0 ? rate / best : 0;
        report.add({fmt::format("{} rows of {}, {}", tokens, layer.name, scheme.name),
                    {{"tflops", rate / 1e12}, {"best_e4m3_tflops", best / 1e12}, {"ratio", ratio}},
                    fmt::format("{:7.1f} TFLOP/s  {:5.2f} of cuBLASLt's best {:.1f}", rate / 1e12,
                                ratio, best / 1e12)});
      }
    }
  }
}

void add_sweep(Bench& bench, Report& report) {
  for (const Layer& layer : kSweptLayers) {
    for (int64_t tokens : kSweptTokens) {
      for (const Scheme& scheme : kSchemes) {
        const double rate = bench.ours(layer, tokens, scheme.format);
        nlohmann::json figures = {{"tflops", rate / 1e12}};
        if (scheme.format.dtype == DType::f8_e4m3 && scheme.format.quantized_input)
          figures["library_makes"] =
              bench.library_makes(layer, tokens, scheme.format.scales == ScaleKind::per_block);
        report.add(
            {fmt::format("{} rows of {}, {}", tokens, layer.name, scheme.name), figures,
             fmt::format("{:7.1f} TFLOP/s  {}", rate / 1e12, figures.value("library_makes", ""))});
      }
    }
  }
}

int run(const std::vector<std::string_view>& words) {
  auto given = [&](std::string_view word) { return std::ranges::count(words, word) > 0; };
  const bool json = given("--json"), all = words.size() == (json ? 1u : 0u);
  Report report(json);
  const std::unique_ptr<Backend> backend = open_cuda(0);
  if (all || given("ceilings")) add_ceilings(backend->device(), report);
  if (all || given("experts")) add_experts(backend->device(), report);
  if (all || given("blocks") || given("products") || given("sweep")) {
    const double read = bench::ceilings(backend->device()).at("read by a kernel");
    Bench bench(*backend);
    if (all || given("blocks")) add_blocks(bench, read, report);
    if (all || given("products")) add_products(bench, report);
    if (all || given("sweep")) add_sweep(bench, report);
  }
  report.end();
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::run({argv + 1, argv + argc});
  } catch (const sluice::Error& e) {
    fmt::print(stderr, "cuda_bench: {}\n", e.what());
    return 1;
  }
}
