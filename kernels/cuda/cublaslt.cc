#include "kernels/cuda/cublaslt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <compare>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/shared_library.h"

namespace sluice::cuda {
namespace {

// The functions of the library that are used here.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
};

Functions functions_of(const SharedLibrary& library) {
  Functions f{};
  library.load(f.create, "cublasLtCreate");
  library.load(f.destroy, "cublasLtDestroy");
  library.load(f.matmul, "cublasLtMatmul");
  library.load(f.desc_create, "cublasLtMatmulDescCreate");
  library.load(f.desc_destroy, "cublasLtMatmulDescDestroy");
  library.load(f.desc_set, "cublasLtMatmulDescSetAttribute");
  library.load(f.layout_create, "cublasLtMatrixLayoutCreate");
  library.load(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.load(f.preference_create, "cublasLtMatmulPreferenceCreate");
  library.load(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.load(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  library.load(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  return f;
}

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(ErrorKind::runtime, "cuBLASLt: {}: status {}", what, static_cast<int>(status));
}

// A pointer with its destroy function.
template <class T>
class Owned {
 public:
  explicit Owned(cublasStatus_t (*destroy)(T)) : destroy_(destroy) {}
  ~Owned() {
    if (value_ != nullptr) destroy_(value_);
  }
  Owned(Owned&& other) noexcept
      : destroy_(other.destroy_), value_(std::exchange(other.value_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  T get() const { return value_; }
  T* out() { return &value_; }

 private:
  cublasStatus_t (*destroy_)(T);
  T value_ = nullptr;
};

enum class Scaling : uint8_t { none, rows, blocks };

// Key of the plans of products: products of one shape are computed in one way.
struct Shape {
  cudaDataType_t factor;  // CUDA_R_8I: summed in 32 bits; CUDA_R_8F_E4M3, CUDA_R_16BF: in float32
  Scaling scaling;
  int64_t n, m, k;
  int64_t y_stride;               // elements
  uint32_t w_aligned, y_aligned;  // bytes
  auto operator<=>(const Shape&) const = default;
};

// Scales of a product's codes.
struct Scales {
  const float *w = nullptr, *x = nullptr;
};

struct Operands {
  const void *one, *w, *x, *zero;
  void* y;
  std::span<std::byte> workspace;
  Stream stream;
};

// The largest power of two that divides an address, as far as it matters.
uint32_t alignment_of(const void* address) {
  constexpr uintptr_t kMost = 256;
  const auto bits = reinterpret_cast<uintptr_t>(address) | kMost;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

// One shape of product, and how it is computed. In the library's column-major eyes y is [m, n], w
// is [k, m] and transposed, x is [k, n].
struct Product {
  Owned<cublasLtMatmulDesc_t> desc;
  Owned<cublasLtMatrixLayout_t> w, x, y;
  std::vector<cublasLtMatmulAlgo_t> ways;  // none: it is not possible, or all were refused
};

class CublasLt final : public Gemm {
 public:
  CublasLt(const Functions& functions, GemmSearch search)
      : f_(functions), handle_(functions.destroy), search_(search) {
    check_cublas(f_.create(handle_.out()), "starting it");
  }

  bool multiply(const Bf16Matrix& x, const Bf16Matrix& w, Tensor y, std::span<std::byte> workspace,
                Stream stream) override {
    Product& p = product(shape_of(CUDA_R_16BF, x, w, y));
    if (p.ways.empty()) say_refused(CUBLAS_STATUS_NOT_SUPPORTED);
    const float one = 1, zero = 0;
    return run(p, {&one, w.data, x.data, &zero, y.data, workspace, stream});
  }

  E4M3Product product_of(const E4M3Matrix& x, const E4M3Matrix& w, Tensor y) override {
    if (!scaled_product(x, w, y).ways.empty()) return E4M3Product::scaled;
    const bool sums = !x.by_block && !product(shape_of(CUDA_R_8F_E4M3, x, w, y)).ways.empty();
    return sums ? E4M3Product::sums : E4M3Product::none;
  }

  bool multiply_e4m3(const E4M3Matrix& x, const E4M3Matrix& w, Tensor y,
                     std::span<std::byte> workspace, Stream stream) override {
    Product& scaled = scaled_product(x, w, y);
    const bool possible = !scaled.ways.empty();
    Product& p = possible ? scaled : product(shape_of(CUDA_R_8F_E4M3, x, w, y));
    if (possible) set_scales(p, {w.scales, x.scales});
    const float one = 1, zero = 0;
    return run(p, {&one, w.data, x.data, &zero, y.data, workspace, stream});
  }

  bool multiply_i8(const I8Matrix& x, const I8Matrix& w, int32_t* y, std::span<std::byte> workspace,
                   Stream stream) override {
    const int32_t one = 1, zero = 0;
    return run(product({CUDA_R_8I, Scaling::none, x.rows, w.rows, x.cols, w.rows,
                        alignment_of(w.data), alignment_of(y)}),
               {&one, w.data, x.data, &zero, y, workspace, stream});
  }

 private:
  template <class Matrix>
  static Shape shape_of(cudaDataType_t factor, const Matrix& x, const Matrix& w, const Tensor& y) {
    return {factor,
            Scaling::none,
            x.rows,
            w.rows,
            x.cols,
            y.stride,
            alignment_of(w.data),
            alignment_of(y.data)};
  }

  template <class Value>
  void set(const Product& p, cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check_cublas(f_.desc_set(p.desc.get(), attribute, &value, sizeof value), "a product");
  }

  void set_scales(const Product& p, const Scales& scales) const {
    set(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.w);
    set(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.x);
  }

  Product& scaled_product(const E4M3Matrix& x, const E4M3Matrix& w, const Tensor& y) {
    Shape shape = shape_of(CUDA_R_8F_E4M3, x, w, y);
    shape.scaling = x.by_block ? Scaling::blocks : Scaling::rows;
    return product(shape, {w.scales, x.scales});
  }

  // False where the library is older than 12.9. The layouts of scales are those of its manual, "1D
  // and 2D Block Scaling Modes for FP8 Data Types".
  bool scale([[maybe_unused]] const Product& p, [[maybe_unused]] Scaling scaling) const {
#if CUBLAS_VERSION >= 120900
    const bool blocks = scaling == Scaling::blocks;
    auto set_mode = [&](cublasLtMatmulDescAttributes_t side,
                        cublasLtMatmulMatrixScale_t of_blocks) {
      const int32_t mode = blocks ? of_blocks : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
      return f_.desc_set(p.desc.get(), side, &mode, sizeof mode) == CUBLAS_STATUS_SUCCESS;
    };
    return set_mode(CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                    CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) &&
           set_mode(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
#else
    return false;
#endif
  }

  // The best by the library's own estimate is the first. One that it refuses after all is not tried
  // again; false where none is left.
  bool run(Product& p, const Operands& o) {
    check(o.workspace.size() >= kGemmWorkspace, "gemm: workspace");
    auto run_once = [&](const cublasLtMatmulAlgo_t& way) {
      const cublasStatus_t status =
          f_.matmul(handle_.get(), p.desc.get(), o.one, o.w, p.w.get(), o.x, p.x.get(), o.zero, o.y,
                    p.y.get(), o.y, p.y.get(), &way, o.workspace.data(), kGemmWorkspace, o.stream);
      // An error of CUDA's that came with it is not the next launch's.
      if (status != CUBLAS_STATUS_SUCCESS) cudaGetLastError();
      return status;
    };
    if (search_ == GemmSearch::fastest && p.ways.size() > 1)
      p.ways = {fastest(p.ways, run_once, o.stream)};
    while (!p.ways.empty()) {
      const cublasStatus_t status = run_once(p.ways.front());
      if (status == CUBLAS_STATUS_SUCCESS) return true;
      p.ways.erase(p.ways.begin());
      if (p.ways.empty()) say_refused(status);
    }
    return false;
  }

  // Warns once, whatever else is refused.
  void say_refused(cublasStatus_t status) {
    if (std::exchange(refused_, true)) return;
    log::warning("cuBLASLt refuses a product (status {}): it is computed another way, more slowly",
                 static_cast<int>(status));
  }

  // Ways that do not work after all are passed over.
  template <class Run>
  static cublasLtMatmulAlgo_t fastest(const std::vector<cublasLtMatmulAlgo_t>& ways,
                                      const Run& run_once, Stream stream) {
    constexpr int kRuns = 10;
    cublasLtMatmulAlgo_t best = ways.front();
    auto shortest = std::chrono::steady_clock::duration::max();
    for (const cublasLtMatmulAlgo_t& way : ways) {
      if (run_once(way) != CUBLAS_STATUS_SUCCESS) continue;
      cudaStreamSynchronize(stream);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kRuns; ++i) run_once(way);
      cudaStreamSynchronize(stream);
      const auto taken = std::chrono::steady_clock::now() - start;
      if (taken < shortest) shortest = taken, best = way;
    }
    return best;
  }

  // Valid until the next call. Prompts of all lengths have shapes of their own: all are forgotten
  // when they are too many, which take about 1 KiB each.
  Product& product(const Shape& shape, const Scales& scales = {}) {
    constexpr size_t kMost = 1024;
    auto found = products_.find(shape);
    if (found != products_.end()) return found->second;
    if (products_.size() == kMost) products_.clear();
    return products_.emplace(shape, plan(shape, scales)).first->second;
  }

  // The library has no way to scale for somebody who does not say by what.
  Product plan(const Shape& shape, const Scales& scales) const {
    Product p{Owned(f_.desc_destroy),
              Owned(f_.layout_destroy),
              Owned(f_.layout_destroy),
              Owned(f_.layout_destroy),
              {}};
    const bool integers = shape.factor == CUDA_R_8I;
    const cudaDataType_t sum = integers ? CUDA_R_32I : CUDA_R_32F;
    check_cublas(
        f_.desc_create(p.desc.out(), integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, sum),
        "a product");
    set(p, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (shape.scaling != Scaling::none) {
      if (!scale(p, shape.scaling)) return p;
      set_scales(p, scales);
    }
    auto layout = [&](Owned<cublasLtMatrixLayout_t>& to, cudaDataType_t type, int64_t rows,
                      int64_t cols, int64_t lead) {
      check_cublas(f_.layout_create(to.out(), type, static_cast<uint64_t>(rows),
                                    static_cast<uint64_t>(cols), lead),
                   "a matrix");
    };
    layout(p.w, shape.factor, shape.k, shape.m, shape.k);
    layout(p.x, shape.factor, shape.k, shape.n, shape.k);
    layout(p.y, sum, shape.m, shape.n, shape.y_stride);
    choose(p, shape);
    return p;
  }

  void choose(Product& p, const Shape& shape) const {
    Owned<cublasLtMatmulPreference_t> preference(f_.preference_destroy);
    check_cublas(f_.preference_create(preference.out()), "a choice");
    const uint64_t workspace = kGemmWorkspace;
    check_cublas(f_.preference_set(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                   &workspace, sizeof workspace),
                 "a choice");
    auto aligned = [&](cublasLtMatmulPreferenceAttributes_t side, const uint32_t& bytes) {
      check_cublas(f_.preference_set(preference.get(), side, &bytes, sizeof bytes), "a choice");
    };
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.w_aligned);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.y_aligned);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.y_aligned);
    std::vector<cublasLtMatmulHeuristicResult_t> results(search_ == GemmSearch::fastest ? 64 : 4);
    int found = 0;
    const cublasStatus_t status =
        f_.heuristic(handle_.get(), p.desc.get(), p.w.get(), p.x.get(), p.y.get(), p.y.get(),
                     preference.get(), static_cast<int>(results.size()), results.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS) return;
    results.resize(static_cast<size_t>(found));
    for (const cublasLtMatmulHeuristicResult_t& result : results) {
      if (result.state == CUBLAS_STATUS_SUCCESS) p.ways.push_back(result.algo);
    }
  }

  Functions f_;
  Owned<cublasLtHandle_t> handle_;
  GemmSearch search_;
  bool refused_ = false;
  std::map<Shape, Product> products_;
};

// Names to load: by the loader's own search, then in the usual places of the toolkit.
std::vector<std::string> library_names() {
  const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  std::vector<std::string> names{file};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable); home != nullptr && *home != '\0')
      names.push_back(std::string(home) + "/lib64/" + file);
  }
  names.push_back("/usr/local/cuda/lib64/" + file);
  return names;
}

}  // namespace

std::unique_ptr<Gemm> load_cublaslt(GemmSearch search) {
  const SharedLibrary library("cuBLASLt", library_names());
  if (!library.found()) {
    log::warning("{} is not found: prompts are computed {} rows at a time, which is slower",
                 library_names().front(), kFewRows);
    return nullptr;
  }
  return std::make_unique<CublasLt>(functions_of(library), search);
}

}  // namespace sluice::cuda
