#include "tests/kernels/cuda/mirrored.h"

#include <algorithm>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/grouped.h"
#include "src/base/error.h"
#include "src/device/host_device.h"

namespace sluice::test {

std::byte* Mirror::add(std::byte* host, size_t bytes, Access access) {
  for (Piece& piece : pieces_) {
    const bool apart = host >= piece.host + piece.bytes || host + bytes <= piece.host;
    if (bytes == 0 || apart) continue;
    check(host >= piece.host && host + bytes <= piece.host + piece.bytes,
          "an op's pieces of memory lie apart, or within one another");
    piece.access = std::max(piece.access, access);
    return piece.device.data() + (host - piece.host);
  }
  return pieces_.emplace_back(host, bytes, access).device.data();
}

Tensor Mirror::read(const Tensor& x) {
  Tensor on_device = x;
  const int64_t count = x.rows == 0 ? 0 : (x.rows - 1) * x.stride + x.cols;
  on_device.data = add(x.data, count * dtype_bytes(x.dtype), Access::read);
  return on_device;
}

Tensor Mirror::write(const Tensor& x) {
  Tensor on_device = x;
  const int64_t count = x.rows == 0 ? 0 : (x.rows - 1) * x.stride + x.cols;
  on_device.data = add(x.data, count * dtype_bytes(x.dtype), Access::write);
  return on_device;
}

Weight Mirror::read(const Weight& w) { return add(w, Access::read); }
Weight Mirror::write(const Weight& w) { return add(w, Access::write); }

Weight Mirror::add(const Weight& w, Access access) {
  Weight on_device = w;
  auto plane = [&]<class T>(Plane which, T* host) {
    const uint64_t bytes = plane_bytes(w.format, which, w.rows, w.cols);
    return bytes == 0 ? nullptr : add(host, static_cast<int64_t>(bytes / sizeof(T)), access);
  };
  on_device.data = plane(Plane::codes, w.data);
  on_device.scales = plane(Plane::scales, w.scales);
  on_device.group_scales = plane(Plane::scales, w.group_scales);
  on_device.zeros = plane(Plane::zeros, w.zeros);
  on_device.order = plane(Plane::order, w.order);
  on_device.outers = plane(Plane::outers, w.outers);
  on_device.tables = plane(Plane::tables, w.tables);
  return on_device;
}

// A piece from the first block's keys to the last one's values, which lie behind them.
KvCache Mirror::add(const KvCache& cache, Access access) {
  check(cache.latent || cache.values >= cache.keys, "values lie behind keys");
  KvCache on_device = cache;
  const int64_t last = (cache.blocks - 1) * cache.block_stride;
  const int64_t to_values = cache.values - cache.keys;
  on_device.keys = add(
      cache.keys, last + std::max(kv_key_bytes(cache), to_values + kv_value_bytes(cache)), access);
  on_device.values = on_device.keys + to_values;
  return on_device;
}

void Mirror::upload() {
  for (Piece& piece : pieces_)
    if (piece.bytes > 0) std::memcpy(piece.device.host(), piece.host, piece.bytes);
}

void Mirror::download(bool first) {
  for (Piece& piece : pieces_) {
    EXPECT_TRUE(piece.device.intact()) << "something was written around a piece of memory";
    const std::span<const std::byte> found(piece.device.host(), piece.bytes);
    if (piece.access == Access::read) {
      EXPECT_TRUE(std::ranges::equal(found, std::span(piece.host, piece.bytes)))
          << "what is to be read was written";
    } else if (first) {
      piece.result.assign(found.begin(), found.end());
    } else if (piece.access == Access::write) {
      EXPECT_TRUE(std::ranges::equal(found, piece.result)) << "depends on the order of threads";
    }
  }
}

namespace {

// The stream that kernels are launched in, with what they ask for beside launches: the copy of a
// step's rows, and zeros where counters are.
class Launches final : public DeviceStream {
 public:
  explicit Launches(DeviceBytes& memory) : memory_(memory) {}
  void copy(std::byte* to, const std::byte* from, uint64_t bytes) override {
    std::copy_n(from, bytes, memory_.host() + (to - memory_.data()));
  }
  void clear(std::byte* at, uint64_t bytes) override {
    std::fill_n(memory_.host() + (at - memory_.data()), bytes, std::byte{});
  }
  void record(DeviceEvent&) override {}
  void synchronize() override {}
  CUstream_st* handle() const override { return test::stream(); }

  void wait(const DeviceEvent&) override { unexpected(); }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>&) override { unexpected(); }
  void launch(DeviceGraph&) override { unexpected(); }

 private:
  [[noreturn]] static void unexpected() { fail(ErrorKind::runtime, "no op asks for this"); }
  DeviceBytes& memory_;
};

// Memory with NaN of every type.
std::span<std::byte> of_nan(DeviceBytes& memory, size_t bytes) {
  std::fill_n(memory.host(), bytes, std::byte{0xff});
  return {memory.data(), bytes};
}

// Products of linear layers are made without a library.
class MirroredKernels final : public Kernels {
 public:
  MirroredKernels(Compute compute, const WorkspaceNeeds& needs)
      : bytes_(cuda::CudaKernels::bytes(needs, false)),
        workspace_(bytes_.device),
        host_(bytes_.host),
        stream_(workspace_),
        device_(make_host_device()),
        kernels_(*device_, stream_, compute, needs, nullptr,
                 {of_nan(workspace_, bytes_.device), host_}) {}

  std::string_view name() const override { return kernels_.name(); }

  void embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const override {
    Mirror m;
    const Weight t = m.read(table);
    const std::span on_device(m.read(ids.data(), std::ssize(ids)), ids.size());
    const Tensor o = m.write(out);
    m.run([&] { kernels_.embed(t, on_device, o); });
  }
  void norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y) const override {
    Mirror m;
    const Weight w = m.read(weight);
    const NormParams p = read(m, params, x.rows, weight.cols);
    x = m.read(x);
    y = m.write(y);
    m.run([&] { kernels_.norm(x, w, p, y); });
  }
  void add_norm(Tensor residual, Tensor x, const Weight& weight, const NormParams& params,
                Tensor y) const override {
    Mirror m;
    const Weight w = m.read(weight);
    const NormParams p = read(m, params, x.rows, weight.cols);
    residual = m.write(residual);
    x = m.read(x);
    y = m.write(y);
    m.run([&] { kernels_.add_norm(residual, x, w, p, y); });
  }
  void sum_squares(Tensor x, Tensor sums) const override {
    Mirror m;
    x = m.read(x);
    sums = m.write(sums);
    m.run([&] { kernels_.sum_squares(x, sums); });
  }
  void linear(Tensor x, const Weight& weight, const float* bias, Tensor y) const override {
    Mirror m;
    const Weight w = m.read(weight);
    bias = m.read(bias, weight.rows);
    x = m.read(x);
    y = m.write(y);
    m.run([&] { kernels_.linear(x, w, bias, y); });
  }
  bool fuses(const Weight& w, int64_t rows, const Fusion& fusion) const override {
    return kernels_.fuses(w, rows, fusion);
  }
  void fused_linear(Tensor x, const Weight& weight, const float* bias, const Fusion& fusion,
                    Tensor y) const override {
    Mirror m;
    const Weight w = m.read(weight);
    Fusion f = fusion;
    if (f.norm) f.norm->weight = m.read(f.norm->weight);
    bias = m.read(bias, weight.rows);
    x = m.read(x);
    y = m.write(y);
    m.run([&] { kernels_.fused_linear(x, w, bias, f, y); });
  }
  void multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& matrices, HeadProduct product,
                      Tensor y, int64_t y_step) const override {
    Mirror m;
    HeadMatrices on_device = matrices;
    on_device.weight = m.read(matrices.weight);
    x = m.read(x);
    y = m.write(y);
    m.run([&] { kernels_.multiply_heads(x, x_step, on_device, product, y, y_step); });
  }
  void rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos,
            Tensor sin) const override {
    Mirror m;
    x = m.write(x);
    cos = m.read(cos);
    sin = m.read(sin);
    m.run([&] { kernels_.rope(x, head_dim, pairing, cos, sin); });
  }
  void store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                const KvCache& cache) const override {
    Mirror m;
    const KvCache c = m.write(cache);
    const std::span at(m.read(slots.data(), std::ssize(slots)), slots.size());
    keys = m.read(keys);
    values = m.read(values);
    m.run([&] { kernels_.store_kv(keys, values, at, c); });
  }
  void rope_store_kv(Tensor q, Tensor keys, Tensor values, RopePairing pairing, Tensor cos,
                     Tensor sin, std::span<const int64_t> slots,
                     const KvCache& cache) const override {
    Mirror m;
    const KvCache c = m.write(cache);
    const std::span at(m.read(slots.data(), std::ssize(slots)), slots.size());
    q = m.write(q);
    keys = m.write(keys);  // which may be rotated in their place, too
    values = m.read(values);
    cos = m.read(cos);
    sin = m.read(sin);
    m.run([&] { kernels_.rope_store_kv(q, keys, values, pairing, cos, sin, at, c); });
  }
  void paged_attention(Tensor q, const KvCache& cache, const KvRows& rows,
                       const AttentionParams& params, Tensor out) const override {
    Mirror m;
    const KvCache c = m.read(cache);
    AttentionParams p = params;
    p.alibi_slopes = read(m, params.alibi_slopes);
    p.sinks = read(m, params.sinks);
    p.chosen.positions = const_cast<int32_t*>(m.read(p.chosen.positions, q.rows * p.chosen.most));
    std::vector<KvRows> groups{rows};
    if (params.more != nullptr) groups.push_back(*params.more->rows);
    const std::span<const KvRows> uploaded = upload(groups, q.rows);
    MoreKeys more;
    if (params.more != nullptr) {
      more = {m.read(params.more->cache), &uploaded[1], params.more->chosen};
      more.chosen.positions =
          const_cast<int32_t*>(m.read(more.chosen.positions, q.rows * more.chosen.most));
      p.more = &more;
    }
    q = m.read(q);
    out = m.write(out);
    m.run([&] { kernels_.paged_attention(q, c, uploaded[0], p, out); });
  }
  void rope_store_attend(Tensor q, Tensor keys, Tensor values, RopePairing pairing, Tensor cos,
                         Tensor sin, const KvCache& cache, const KvRows& rows,
                         const AttentionParams& params, Tensor out) const override {
    Mirror m;
    const KvCache c = m.write(cache);
    AttentionParams p = params;
    p.alibi_slopes = read(m, params.alibi_slopes);
    p.sinks = read(m, params.sinks);
    const KvRows uploaded = upload({&rows, 1}, q.rows).front();
    q = m.write(q);  // which may be rotated in their place
    keys = m.write(keys);
    values = m.read(values);
    cos = m.read(cos);
    sin = m.read(sin);
    out = m.write(out);
    m.run([&] {
      kernels_.rope_store_attend(q, keys, values, pairing, cos, sin, c, uploaded, p, out);
    });
  }
  void choose_positions(Tensor q, Tensor weights, const KvCache& keys, const KvRows& rows,
                        const ChosenPositions& out) const override {
    Mirror m;
    const KvCache c = m.read(keys);
    const ChosenPositions o{m.write(out.positions, q.rows * out.most), out.most};
    const KvRows uploaded = upload({&rows, 1}, q.rows).front();
    q = m.read(q);
    weights = m.read(weights);
    m.run([&] { kernels_.choose_positions(q, weights, c, uploaded, o); });
  }
  void activate(const ActivationParams& activation, Tensor x, Tensor up,
                Tensor out) const override {
    Mirror m;
    ActivationParams params = activation;
    params.values = m.read(params.values, kXieluValues);
    x = m.read(x);
    up = m.read(up);
    out = m.write(out);
    m.run([&] { kernels_.activate(params, x, up, out); });
  }
  void add(Tensor x, Tensor y) const override {
    Mirror m;
    x = m.write(x);
    y = m.read(y);
    m.run([&] { kernels_.add(x, y); });
  }
  void scale(Tensor x, float factor, const float* by) const override {
    Mirror m;
    x = m.write(x);
    by = m.read(by, 1);
    m.run([&] { kernels_.scale(x, factor, by); });
  }
  void causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                   Tensor y) const override {
    Mirror m;
    ConvParams p = params;
    p.weight = m.read(params.weight, x.cols * params.width);
    p.bias = m.read(params.bias, x.cols);
    const int64_t rows = x.rows;
    x = m.read(x);
    y = m.write(y);
    const StateRows s = write(m, state, rows);
    m.run([&] { kernels_.causal_conv(x, p, s, y); });
  }
  void pool(Tensor values, Tensor gates, const PoolParams& params, const StateRows& state,
            Tensor out) const override {
    Mirror m;
    PoolParams p = params;
    p.bias = m.read(params.bias, params.tokens * gates.cols);
    values = m.read(values);
    gates = m.read(gates);
    const int64_t rows = out.rows;
    out = m.write(out);
    const StateRows s = write(m, state, rows);
    m.run([&] { kernels_.pool(values, gates, p, s, out); });
  }
  void read_streams(Tensor streams, const StreamMix& mix, Tensor logits,
                    Tensor out) const override {
    Mirror m;
    StreamMix on_device = mix;
    on_device.scales = m.read(mix.scales, 3);
    on_device.biases = m.read(mix.biases, logits.cols);
    streams = m.read(streams);
    logits = m.write(logits);
    out = m.write(out);
    m.run([&] { kernels_.read_streams(streams, on_device, logits, out); });
  }
  void write_streams(Tensor x, Tensor weights, Tensor streams) const override {
    Mirror m;
    x = m.read(x);
    weights = m.read(weights);
    streams = m.write(streams);
    m.run([&] { kernels_.write_streams(x, weights, streams); });
  }
  void decay(Tensor steps, const DecayParams& params, Tensor decays) const override {
    Mirror m;
    DecayParams p = params;
    p.log_rates = m.read(params.log_rates, steps.cols / params.of_head);
    p.bias = m.read(params.bias, steps.cols);
    steps = m.write(steps);
    decays = m.write(decays);
    m.run([&] { kernels_.decay(steps, p, decays); });
  }
  void slope_decays(const DecaySlopes& slopes, Tensor decays) const override {
    Mirror m;
    decays = m.write(decays);
    m.run([&] { kernels_.slope_decays(slopes, decays); });
  }
  void scan(const ScanInputs& inputs, const ScanParams& params, const StateRows& state,
            Tensor out) const override {
    Mirror m;
    ScanParams p = params;
    p.skip = m.read(params.skip, inputs.steps.cols);
    const ScanInputs in{m.read(inputs.queries), m.read(inputs.keys), m.read(inputs.values),
                        m.read(inputs.decays), m.read(inputs.steps)};
    out = m.write(out);
    const StateRows s = write(m, state, out.rows);
    m.run([&] { kernels_.scan(in, p, s, out); });
  }
  void selective_scan(const SelectiveInputs& inputs, const SelectiveParams& params,
                      const StateRows& state, Tensor out) const override {
    Mirror m;
    SelectiveParams p = params;
    p.log_rates = m.read(params.log_rates, out.cols * inputs.keys.cols);
    p.skip = m.read(params.skip, out.cols);
    const SelectiveInputs in{m.read(inputs.queries), m.read(inputs.keys), m.read(inputs.values),
                             m.read(inputs.steps)};
    out = m.write(out);
    const StateRows s = write(m, state, out.rows);
    m.run([&] { kernels_.selective_scan(in, p, s, out); });
  }
  void route(Tensor logits, const RouterParams& params, const ExpertChoices& out) const override {
    Mirror m;
    RouterParams p = params;
    p.bias = m.read(params.bias, logits.cols);
    p.factors = m.read(params.factors, logits.cols);
    if (params.table != nullptr) {
      p.table =
          m.read(params.table, (1 + *std::ranges::max_element(params.ids)) * int64_t{params.top_k});
      p.ids = {m.read(params.ids.data(), std::ssize(params.ids)), params.ids.size()};
    }
    const int64_t count = logits.rows * params.top_k;
    const ExpertChoices o{m.write(out.experts, count), m.write(out.weights, count)};
    logits = m.read(logits);
    m.run([&] { kernels_.route(logits, p, o); });
  }
  void index_select(Tensor x, std::span<const int32_t> rows, Tensor weights,
                    Tensor out) const override {
    Mirror m;
    x = m.read(x);
    if (weights.data != nullptr) weights = m.read(weights);
    const std::span at(m.read(rows.data(), std::ssize(rows)), rows.size());
    out = m.write(out);
    m.run([&] { kernels_.index_select(x, at, weights, out); });
  }
  void index_add(Tensor x, std::span<const int32_t> rows, Tensor weights, Tensor y) const override {
    Mirror m;
    x = m.read(x);
    const std::span at(m.read(rows.data(), std::ssize(rows)), rows.size());
    if (weights.data != nullptr) weights = m.read(weights);
    y = m.write(y);
    m.run([&] { kernels_.index_add(x, at, weights, y); });
  }
  bool computes_experts(const ExpertWeights& weights, int64_t top_k) const override {
    return kernels_.computes_experts(weights, top_k);
  }
  void experts(Tensor x, const ExpertWeights& weights, int64_t top_k, const ExpertChoices& choices,
               const SharedExpert& shared, Tensor y) const override {
    Mirror m;
    ExpertWeights w = weights;
    w.up = read(m, weights.up, weights.count);
    w.down = read(m, weights.down, weights.count);
    const int64_t pairs = x.rows * top_k;
    const ExpertChoices c{const_cast<int32_t*>(m.read(choices.experts, pairs)),
                          const_cast<float*>(m.read(choices.weights, pairs))};
    const SharedExpert s{shared.out.data == nullptr ? Tensor{} : m.read(shared.out),
                         shared.weights.data == nullptr ? Tensor{} : m.read(shared.weights)};
    y = m.write(y);
    x = m.read(x);  // or where y is
    m.run([&] { kernels_.experts(x, w, top_k, c, s, y); });
  }
  void scale_heads(Tensor x, Tensor factors) const override {
    Mirror m;
    factors = m.read(factors);
    x = m.write(x);
    m.run([&] { kernels_.scale_heads(x, factors); });
  }
  void mix(Tensor x, Tensor weights, float added, int64_t dim, Tensor y) const override {
    Mirror m;
    weights = m.read(weights);
    y = m.write(y);
    x = m.read(x);  // or where y is
    m.run([&] { kernels_.mix(x, weights, added, dim, y); });
  }
  void match_squares(Tensor x, Tensor to, float least) const override {
    Mirror m;
    to = m.read(to);
    x = m.write(x);
    m.run([&] { kernels_.match_squares(x, to, least); });
  }
  void sum_moments(Tensor x, Tensor moments) const override {
    Mirror m;
    x = m.read(x);
    moments = m.write(moments);
    m.run([&] { kernels_.sum_moments(x, moments); });
  }
  void cut(Tensor x, float deviations, Tensor moments, int64_t cols) const override {
    Mirror m;
    moments = m.read(moments);
    x = m.write(x);
    m.run([&] { kernels_.cut(x, deviations, moments, cols); });
  }
  void soft_cap(Tensor x, float cap) const override {
    Mirror m;
    x = m.write(x);
    m.run([&] { kernels_.soft_cap(x, cap); });
  }
  void clamp(Tensor x, float limit) const override {
    Mirror m;
    x = m.write(x);
    m.run([&] { kernels_.clamp(x, limit); });
  }
  void likeliest(Tensor logits, std::span<TokenLogit> out) const override {
    Mirror m;
    logits = m.read(logits);
    const std::span to(m.write(out.data(), std::ssize(out)), out.size());
    m.run([&] { kernels_.likeliest(logits, to); });
  }
  void top_logits(Tensor logits, int64_t k, const TopLogits& out) const override {
    Mirror m;
    TopLogits to = out;
    to.tokens = m.write_in_any_order(out.tokens, logits.rows * out.most);
    to.counts = m.write(out.counts, logits.rows);
    logits = m.read(logits);
    m.run([&] { kernels_.top_logits(logits, k, to); });
  }

 private:
  static std::span<const float> read(Mirror& m, std::span<const float> values) {
    return {m.read(values.data(), std::ssize(values)), values.size()};
  }
  // All experts' memory, from the first one's codes to the last one's bias.
  static ExpertMatrix read(Mirror& m, const ExpertMatrix& matrix, int64_t count) {
    m.read(matrix.first.data, count * matrix.step);  // other planes lie behind the codes
    ExpertMatrix on_device = matrix;
    on_device.first = m.read(matrix.first);
    on_device.bias = m.read(matrix.bias, matrix.first.rows);
    return on_device;
  }
  static NormParams read(Mirror& m, NormParams params, int64_t rows, int64_t cols) {
    params.bias = m.read(params.bias, cols);
    params.squares = m.read(params.squares, rows);
    return params;
  }
  std::span<const KvRows> upload(std::span<const KvRows> groups, int64_t rows) const {
    const std::vector<int32_t> ids(static_cast<size_t>(rows));
    return kernels_.upload({.ids = ids, .host_ids = ids, .kv = groups, .cos = {}, .sin = {}}).kv;
  }
  StateRows write(Mirror& m, const StateRows& state, int64_t rows) const {
    StateRows on_device{state.cache, upload(state.groups, rows)};
    on_device.cache.pages = m.write(state.cache.pages, state.cache.blocks * state.cache.page_bytes);
    return on_device;
  }

  WorkspaceBytes bytes_;
  DeviceBytes workspace_;
  std::vector<std::byte> host_;
  Launches stream_;
  std::unique_ptr<Device> device_;
  mutable cuda::CudaKernels kernels_;  // upload() is for the caller of a step
};

// Elements are encoded by themselves, for the most part: each call takes one order of threads.
class MirroredEncoder final : public Encoder {
 public:
  EncodeStats encode(const EncodeArgs& args) const override {
    Mirror m;
    EncodeArgs on_device = args;
    on_device.to = m.write(args.to);
    if (is_quantized(args)) {
      on_device.source = m.read(args.source, quantized_source_bytes(args));
      if (args.order != nullptr && args.plane == Plane::codes)  // as the encoder copies it
        std::copy_n(args.order, args.to.cols, args.to.order);
      if (args.tables != nullptr && args.plane == Plane::codes)
        std::copy_n(args.tables, plane_bytes(args.to.format, Plane::tables, 0, 0) / sizeof(float),
                    args.to.tables);
      m.run_in_turn([&] { cuda::encode_quantized(on_device, test::stream()); });
      return quantized_stats(args);
    }
    on_device.source = m.read(args.source, args.source_bytes());
    if (args.row_scales != nullptr)
      std::copy_n(args.row_scales, args.rows,
                  reinterpret_cast<float*>(args.to.plane(Plane::scales)) + args.first_row);
    EncodeStats stats;
    EncodeStats* to = m.write_in_any_order(&stats, 1);
    const float* amax = m.read(&args.tensor_amax, 1);
    m.run_in_turn([&] { cuda::encode(on_device, amax, to, test::stream()); });
    return stats;
  }
  float absolute_max(const std::byte* source, DType stored, int64_t stride, int64_t rows,
                     int64_t cols) const override {
    Mirror m;
    float found = 0;
    float* amax = m.write(&found, 1);
    source = m.read(source, rows == 0 ? 0 : (rows - 1) * stride + cols * dtype_bytes(stored));
    m.run_in_turn(
        [&] { cuda::absolute_max(source, stored, stride, rows, cols, amax, test::stream()); });
    return found;
  }
  void order_columns(const Weight& to, int64_t first_row, int64_t rows,
                     const int32_t* order) const override {
    Mirror m;
    const Weight on_device = m.write(to);
    std::copy_n(order, to.cols, to.order);
    const int64_t row_bytes = grouped_row_bytes(to.format, to.cols);
    const std::byte* from = to.data + first_row * row_bytes;
    const std::vector<std::byte> copy(from, from + rows * row_bytes);
    const std::byte* source = m.read(copy.data(), std::ssize(copy));
    m.run_in_turn([&] { cuda::order_columns(on_device, source, first_row, rows, test::stream()); });
  }
};

const Gpu kGpu{[](Compute compute, const WorkspaceNeeds& needs) -> std::unique_ptr<Kernels> {
                 return std::make_unique<MirroredKernels>(compute, needs);
               },
               []() -> std::unique_ptr<Encoder> { return std::make_unique<MirroredEncoder>(); }};

}  // namespace

std::vector<Target> every_target() {
  Target cuda{.isa = Isa::portable, .name = "cuda"};
  cuda.gpu = &kGpu;
  cuda.rounding = kSumRounding;
  return {cuda};
}
std::vector<Target> every_target_and_tiles() { return every_target(); }

}  // namespace sluice::test
