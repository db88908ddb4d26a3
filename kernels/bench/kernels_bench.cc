// kernels_bench [ISA...] [linear] [attention] [states] [encode]: decode and prefill of linear
// layers, attention and recurrences, and encoding, each beside the bound that it should come near,
// measured just before.
// Times are the best of several runs.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/membw.h"
#include "kernels/cpu/peak.h"
#include "kernels/kernels.h"
#include "quant/groups.h"

namespace sluice {
namespace {

constexpr int kRuns = 7;

// Zeroed memory on huge pages where the system gives them.
class Pages {
 public:
  explicit Pages(uint64_t bytes) : size_(round_up(bytes, 2 * MiB)) {
    void* p = mmap(nullptr, size_ + 2 * MiB, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(p != MAP_FAILED, "mmap");
    mapped_ = static_cast<std::byte*>(p);
    const auto address = reinterpret_cast<uintptr_t>(p);
    data_ = mapped_ + (round_up(address, 2 * MiB) - address);
    madvise(data_, size_, MADV_HUGEPAGE);
  }
  ~Pages() { munmap(mapped_, size_ + 2 * MiB); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, size_}; }
  Tensor matrix(int64_t rows, int64_t cols) const { return {data_, DType::f32, rows, cols, cols}; }

 private:
  uint64_t size_;
  std::byte* mapped_;
  std::byte* data_;
};

double best_seconds(const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

struct Bench {
  ThreadPool& pool;
  Isa isa;
  std::span<const std::byte> memory;  // well above any cache

  std::unique_ptr<Kernels> kernels(Compute compute, std::span<std::byte> workspace = {}) const {
    return make_cpu_kernels(isa, compute, pool, workspace);
  }
  void line(const std::string& what, const std::string& figures) const {
    fmt::print("{:12} {:34} {}\n", kernels(Compute::bf16)->name(), what, figures);
  }
  // Rate at which body() reads `bytes` from memory, and its share of what plain reading reaches.
  std::string rate(int64_t bytes, const std::function<void()>& body) const {
    const double bandwidth = read_bandwidth(memory, pool);
    const double rate = static_cast<double>(bytes) / best_seconds(body);
    return fmt::format("{:7.1f} GB/s  {:5.2f} of read bandwidth {:.1f}", rate / 1e9,
                       rate / bandwidth, bandwidth / 1e9);
  }
};

// Small numbers of any bits: bf16 and E4M3 alike.
void fill(std::span<std::byte> bytes) {
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const uint64_t word = state & 0xbfbfbfbfbfbfbfbf;
    std::copy_n(reinterpret_cast<const std::byte*>(&word), 8, bytes.data() + i);
  }
}

struct Format {
  const char* name;
  WeightFormat format;
};
const Format kFormats[] = {
    {"bf16", {DType::bf16, WeightLayout::packed, ScaleKind::none}},
    {"fp8 per row", {DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row}},
    {"fp8 per block", {DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_block}},
    {"int8", {DType::i8, WeightLayout::packed, ScaleKind::per_row}},
    {"q4_k", {.dtype = DType::q4_k}},
    {"q6_k", {.dtype = DType::q6_k}},
    {"q8_0", {.dtype = DType::q8_0}},
    {"4 bits, groups of 128",
     {.dtype = DType::u8, .scales = ScaleKind::grouped, .bits = 4, .scale_type = DType::f16}},
};

constexpr int64_t kRows = 8192, kCols = 3072;
constexpr int64_t kWeightBytes = 1200 << 20;  // well above any cache

// Layers one after the other, as a forward pass has them.
void bench_linear(const Bench& b, const Pages& weights, Compute compute) {
  const WorkspaceNeeds needs{.max_rows = 512, .max_cols = kCols, .grouped = true};
  const Pages workspace(cpu_workspace_bytes(needs, b.pool.size())), x(512 * kCols * 4),
      y(512 * kRows * 4);
  const auto kernels = b.kernels(compute, workspace.span());
  const char* mode = compute == Compute::bf16 ? "" : ", float32 compute";
  for (const Format& f : kFormats) {
    const auto bytes = static_cast<int64_t>(storage_bytes(f.format, kRows, kCols));
    const int64_t layers = kWeightBytes / bytes;
    const auto layer_weight = [&](int64_t layer) {
      return weight_in(f.format, kRows, kCols, weights.data() + layer * bytes);
    };
    for (int64_t n : {1, 4, 16}) {
      b.line(fmt::format("linear {}, {} rows{}", f.name, n, mode), b.rate(layers * bytes, [&] {
        for (int64_t layer = 0; layer < layers; ++layer) {
          kernels->linear(x.matrix(n, kCols), layer_weight(layer), nullptr, y.matrix(n, kRows));
        }
      }));
    }
    const Weight w = layer_weight(0);
    const double seconds = best_seconds(
        [&] { kernels->linear(x.matrix(512, kCols), w, nullptr, y.matrix(512, kRows)); });
    const double operations = 2.0 * 512 * kRows * kCols / seconds;
    const DType multiplied = is_grouped(f.format) ? DType::bf16 : f.format.dtype;
    const double peak = peak_operations(b.isa, compute, multiplied, b.pool);
    b.line(fmt::format("linear {}, 512 rows{}", f.name, mode),
           fmt::format("{:7.0f} GFLOP/s {:5.2f} of the instruction's {:.0f}", operations / 1e9,
                       operations / peak, peak / 1e9));
  }
}

// A long sequence in the caches of some layers: those of one would fit into L3.
void bench_attention(const Bench& b, DType dtype, int64_t window) {
  constexpr int64_t kContext = 8192, kHeads = 32, kKvHeads = 8, kDim = 128, kBlock = 16,
                    kLayers = 8;
  const WorkspaceNeeds needs{512, kHeads * kDim, kDim, kDim};
  KvCache cache{.dtype = dtype,
                .blocks = kContext / kBlock,
                .block_size = kBlock,
                .kv_heads = kKvHeads,
                .key_dim = kDim,
                .value_dim = kDim};
  cache.block_stride = kLayers * kv_block_bytes(cache);  // a page has the blocks of all layers
  const Pages workspace(cpu_workspace_bytes(needs, b.pool.size())), q(512 * kHeads * kDim * 4),
      out(512 * kHeads * kDim * 4), pages(cache.blocks * cache.block_stride);
  fill(pages.span());  // memory never written is one page
  const auto kernels = b.kernels(Compute::bf16, workspace.span());
  std::vector<int32_t> table(kContext / kBlock);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  const AttentionParams params{.scale = 0.1f, .window = window};
  const auto attend = [&](int64_t rows, int64_t layers) {
    const SequenceChunk chunk{0, rows, kContext - rows, table};
    for (int64_t layer = 0; layer < layers; ++layer) {
      cache.keys = pages.data() + layer * kv_block_bytes(cache);
      cache.values = cache.keys + kv_key_bytes(cache);
      kernels->paged_attention(q.matrix(rows, kHeads * kDim), cache, {{&chunk, 1}, {}}, params,
                               out.matrix(rows, kHeads * kDim));
    }
  };
  const std::string name = fmt::format("attention {} at {}{}", dtype_name(dtype), kContext,
                                       window > 0 ? fmt::format(", window {}", window) : "");
  const int64_t seen = window > 0 ? window : kContext;
  b.line(name + ", 1 row",
         b.rate(cache.blocks * cache.block_stride * seen / kContext, [&] { attend(1, kLayers); }));
  constexpr int64_t kRowsOfPrompt = 512;
  const int64_t positions =  // twice, attended to, of all rows
      kRowsOfPrompt * (window > 0 ? 2 * window : 2 * kContext - kRowsOfPrompt + 1);
  const double operations = 2.0 * static_cast<double>(positions * kHeads * kDim) /
                            best_seconds([&] { attend(kRowsOfPrompt, 1); });
  const double peak = peak_operations(b.isa, Compute::bf16, DType::bf16, b.pool);
  b.line(fmt::format("{}, {} rows", name, kRowsOfPrompt),
         fmt::format("{:7.0f} GFLOP/s {:5.2f} of the instruction's {:.0f}", operations / 1e9,
                     operations / peak, peak / 1e9));
}

// The gated delta rule: states of some layers are read and written by each token, and stay in
// caches for the rows of a prompt. An operation is half of a multiply-add: there are three of an
// element.
void bench_states(const Bench& b) {
  constexpr int64_t kHeads = 32, kKeyHeads = 16, kDim = 128, kLayers = 24;
  constexpr int64_t kBytes = kHeads * kDim * kDim * 4;
  const WorkspaceNeeds needs{.max_rows = 512, .max_cols = kHeads * kDim, .state_keys = kDim};
  const Pages workspace(cpu_workspace_bytes(needs, b.pool.size())), states(kLayers * kBytes);
  const Pages keys(512 * kKeyHeads * kDim * 4), values(512 * kHeads * kDim * 4);
  const Pages steps(512 * kHeads * 4);
  const auto kernels = b.kernels(Compute::bf16, workspace.span());
  const int32_t block = 0;
  const auto scan = [&](int64_t rows, int64_t layers) {
    const SequenceChunk chunk{0, rows, 512, {&block, 1}};
    const KvRows group{{&chunk, 1}, {}};
    const ScanInputs inputs{keys.matrix(rows, kKeyHeads * kDim),
                            keys.matrix(rows, kKeyHeads * kDim), values.matrix(rows, kHeads * kDim),
                            steps.matrix(rows, kHeads), steps.matrix(rows, kHeads)};
    for (int64_t layer = 0; layer < layers; ++layer) {
      const StateCache cache{.pages = states.data() + layer * kBytes,
                             .page_bytes = kBytes,
                             .blocks = 1,
                             .rows = kHeads * kDim,
                             .cols = kDim,
                             .page_rows = kHeads * kDim};
      kernels->scan(inputs, {.key_dim = kDim, .delta = true}, {cache, {&group, 1}},
                    values.matrix(rows, kHeads * kDim));
    }
  };
  b.line("delta rule, 1 row", b.rate(kLayers * kBytes, [&] { scan(1, kLayers); }));
  const double operations = 6.0 * 512 * kHeads * kDim * kDim / best_seconds([&] { scan(512, 1); });
  const double peak = peak_operations(b.isa, Compute::f32, DType::f32, b.pool);
  b.line("delta rule, 512 rows", fmt::format("{:7.0f} GFLOP/s {:5.2f} of the instruction's {:.0f}",
                                             operations / 1e9, operations / peak, peak / 1e9));
}

// A selective scan: states and rates of some layers are read by each token. The bound of a prompt
// is that of multiply-adds, of which each element takes as many as it takes instructions of
// vectors: those of exp, and four.
void bench_selective(const Bench& b) {
  constexpr int64_t kChannels = 8192, kKeys = 16, kLayers = 64, kElements = kChannels * kKeys;
  constexpr int64_t kBytes = kElements * 4, kInstructions = 23 + 4;
  const WorkspaceNeeds needs{.max_rows = 512, .max_cols = kChannels, .state_keys = kKeys};
  const Pages workspace(cpu_workspace_bytes(needs, b.pool.size()));
  const Pages states(kLayers * kBytes), rates(kLayers * kBytes);
  const Pages keys(512 * kKeys * 4), values(512 * kChannels * 4), steps(512 * kChannels * 4);
  const auto kernels = b.kernels(Compute::bf16, workspace.span());
  const int32_t block = 0;
  const auto scan = [&](int64_t rows, int64_t layers) {
    const SequenceChunk chunk{0, rows, 512, {&block, 1}};
    const KvRows group{{&chunk, 1}, {}};
    const Tensor wide = values.matrix(rows, kChannels), few = keys.matrix(rows, kKeys);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const StateCache cache{.pages = states.data() + layer * kBytes,
                             .page_bytes = kBytes,
                             .blocks = 1,
                             .rows = kKeys,
                             .cols = kChannels,
                             .page_rows = kKeys};
      const auto* logs = reinterpret_cast<const float*>(rates.data() + layer * kBytes);
      kernels->selective_scan({few, few, wide, steps.matrix(rows, kChannels)},
                              {.log_rates = logs, .skip = logs}, {cache, {&group, 1}}, wide);
    }
  };
  b.line("selective scan, 1 row", b.rate(2 * kLayers * kBytes, [&] { scan(1, kLayers); }));
  const double operations =
      2.0 * kInstructions * 512 * kElements / best_seconds([&] { scan(512, 1); });
  const double peak = peak_operations(b.isa, Compute::f32, DType::f32, b.pool);
  b.line("selective scan, 512 rows",
         fmt::format("{:7.0f} G multiply-adds/s {:5.2f} of the instruction's {:.0f}",
                     operations / 2e9, operations / peak, peak / 2e9));
}

void bench_encode(const Bench& b, const Pages& source) {
  const Pages to(kRows * kCols * 2), scales(kRows * 4);
  const std::unique_ptr<Encoder> encoder = make_cpu_encoder(b.isa);
  for (const QuantScheme& scheme : element_schemes()) {
    EncodeArgs args;
    args.source = source.data();
    args.source_stride = kCols * 2;
    args.rows = kRows;
    args.group = scheme.group;
    args.tensor_amax = 2;
    args.to = {scheme.format(DType::bf16, WeightLayout::packed), kRows, kCols, to.data(),
               reinterpret_cast<float*>(scales.data())};
    const double seconds = best_seconds([&] { encoder->encode(args); });
    b.line(fmt::format("encode bf16 to {}, 1 thread", scheme.name),
           fmt::format("{:7.2f} GB/s of source", kRows * kCols * 2 / seconds / 1e9));
  }
}

// Codes of four bits into panels, from rows (compressed-tensors), columns (GPTQ) and across (AWQ);
// and the columns of panels into another order (GPTQ).
void bench_pack(const Bench& b, const Pages& source) {
  WeightFormat format{.dtype = DType::u8, .scales = ScaleKind::grouped};
  format.bits = 4;
  format.ordered = true;
  const Pages to(storage_bytes(format, kRows, kCols));
  const std::unique_ptr<Encoder> encoder = make_cpu_encoder(b.isa);
  std::vector<int32_t> order(kCols);
  for (int32_t k = 0; k < kCols; ++k) order[static_cast<size_t>(k)] = (k * 1201) % kCols;
  EncodeArgs args;
  args.source = source.data();
  args.to = weight_in(format, kRows, kCols, to.data());
  const auto rate = [&](const char* name, const auto& work) {
    b.line(fmt::format("{}, 1 thread", name),
           fmt::format("{:7.2f} GB/s of codes", kRows * kCols / 2 / best_seconds(work) / 1e9));
  };
  const auto line = [&](const char* name) { rate(name, [&] { encoder->encode(args); }); };
  args.stored = DType::u8;
  args.rows = kRows;
  args.source_stride = kCols / 2;
  line("pack rows of codes");
  args.stored = DType::u32;
  args.outputs = kRows;
  args.rows = kCols / 8;
  args.source_stride = kRows * 4;
  line("pack columns of codes");
  args.words = {.across = true, .places = 0x73625140};
  args.rows = kCols;
  args.source_stride = kRows / 2;
  line("pack codes across outputs");
  rate("change the order of columns",
       [&] { encoder->order_columns(args.to, 0, kRows, order.data()); });
}

int run(int argc, char** argv) {
  std::vector<Isa> isas;
  std::set<std::string> parts;
  for (const std::string name : std::span(argv, static_cast<size_t>(argc)).subspan(1)) {
    const auto isa = parse_isa(name);
    if (isa && isa_supported(*isa)) {
      isas.push_back(*isa);
    } else if (name == "linear" || name == "attention" || name == "states" || name == "encode") {
      parts.insert(name);
    } else {
      fmt::print(stderr, "kernels_bench: no part and no instruction set {} here\n", name);
      return 2;
    }
  }
  if (isas.empty()) isas.push_back(Isa::automatic);
  const auto chosen = [&](const char* part) { return parts.empty() || parts.contains(part); };
  ThreadPool pool(usable_threads());
  const Pages weights(kWeightBytes);
  fill(weights.span());
  fmt::print("{} threads\n", pool.size());
  for (Isa isa : isas) {
    const Bench bench{pool, isa, weights.span()};
    if (chosen("linear")) {
      bench_linear(bench, weights, Compute::bf16);
      bench_linear(bench, weights, Compute::f32);
    }
    if (chosen("attention")) {
      for (DType dtype : {DType::bf16, DType::f8_e4m3, DType::f8_e5m2})
        bench_attention(bench, dtype, 0);
      bench_attention(bench, DType::bf16, 1024);
    }
    if (chosen("states")) {
      bench_states(bench);
      bench_selective(bench);
    }
    if (chosen("encode")) bench_encode(bench, weights);
    if (chosen("encode")) bench_pack(bench, weights);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::run(argc, argv); }
