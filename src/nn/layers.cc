#include "src/nn/layers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/nn/host_side.h"
#include "src/nn/weight_stream.h"

namespace sluice {

Linear::Linear(std::string path, const std::vector<LinearPart>& parts, int64_t inputs, bool bias,
               Rank rank, ParamRole role)
    : Module(std::move(path)), adds_up_(rank.size > 1 && parts.front().shard.divides_inputs()) {
  std::vector<PieceSpec> weights;
  std::vector<PieceSpec> biases;
  for (const LinearPart& p : parts) {
    weights.push_back({p.source + (p.bare ? "" : ".weight"), p.outputs, inputs, p.shard, p.view});
    biases.push_back(
        {p.source + (p.bare ? "_bias" : ".bias"), p.outputs, 0, p.shard.for_bias(), p.view});
  }
  weight_ =
      &add_param(make_matrix(this->path() + ".weight", role, WeightLayout::packed, weights, rank));
  for (const Piece& piece : weight_->pieces) parts_.push_back({piece.offset, piece.cut.rows});
  if (bias)
    bias_ =
        &add_param(make_vector(this->path() + ".bias", ParamRole::bias, biases, rank, kPanelRows));
}

void Linear::set_expert(int64_t number, double share) {
  weight_->expert = number;
  weight_->share = share;
}

void expect(const Param& param, bool is_wanted) {
  if (param.stream != nullptr) param.stream->expect(param, is_wanted);
  for (const auto& part : param.parts) expect(*part, is_wanted);
}

bool is_at_hand(const Param& param) {
  if (param.stream != nullptr) return param.stream->is_at_hand(param);
  return std::ranges::all_of(param.parts, [](const auto& part) { return is_at_hand(*part); });
}

void multiply(const Context& context, Tensor x, const Param& w, const float* bias, Tensor y) {
  const Kernels& kernels = context.kernels;
  if (w.stream == nullptr) return kernels.linear(x, w.value, bias, y);
  const float* on_host = bias != nullptr ? w.stream->host_vector(bias) : nullptr;
  const bool can_add = bias == nullptr || on_host != nullptr;
  if (context.on_host) {
    check(can_add, "a bias in host memory");
    return kernels.linear(x, w.value, on_host, y);
  }
  if (context.host != nullptr && can_add && is_multiplied_by_host(w, x.rows))
    return context.host->linear(x, w.value, on_host, y, kernels.stream());
  for (int64_t row = 0; row < w.rows;) {
    WeightTile tile = w.stream->tile(w, row, kernels.stream());
    kernels.linear(x, tile.weight, bias ? bias + tile.first_row : nullptr,
                   y.columns(tile.first_row, tile.weight.rows));
    row = tile.first_row + tile.weight.rows;
  }
}

void Linear::multiply_parts(const Context& context, Tensor x, const float* bias, Tensor y) const {
  for (size_t i = 0; i < weight_->parts.size(); ++i) {
    const Param& part = *weight_->parts[i];
    const int64_t first = weight_->pieces[i].offset;
    multiply(context, x, part, bias ? bias + first : nullptr, y.columns(first, part.rows));
  }
}

bool Linear::fuses(const Context& context, int64_t rows, const Fusion& fusion) const {
  return !adds_up_ && !context.on_host && weight_->is_resident() &&
         context.kernels.fuses(weight_->value, rows, fusion);
}

bool Linear::adds(const Context& context, int64_t rows) const {
  return fuses(context, rows, {.norm = {}, .activation = {}, .adds = true});
}

bool Linear::forward_activated(const Context& context, const RowsIn& input, int64_t width,
                               const ActivationParams& activation, Tensor y) const {
  Fusion fusion{.norm = input.norm != nullptr ? input.norm->of_input() : std::nullopt,
                .width = width,
                .second = part_begin(1),
                .activation = activation};
  const bool norms = fusion.norm && fuses(context, y.rows, fusion);
  if (!norms) fusion.norm.reset();
  if (!norms && !fuses(context, y.rows, fusion)) return false;
  context.kernels.fused_linear(norms ? input.rows : input.read(context.kernels), weight_->value,
                               float_data(bias_), fusion, y);
  return true;
}

void Linear::forward(const Context& context, const RowsIn& input, const RowsOut& output) const {
  const bool adds_bias = bias_ != nullptr && (!adds_up_ || context.group.rank().rank == 0);
  const float* bias = adds_bias ? reinterpret_cast<const float*>(bias_->value.data) : nullptr;
  const Tensor y = output.y;
  const Fusion fusion{.norm = input.norm != nullptr ? input.norm->of_input() : std::nullopt,
                      .activation = {},
                      .adds = output.adds};
  if ((fusion.norm || fusion.adds) && fuses(context, y.rows, fusion))
    return context.kernels.fused_linear(input.rows, weight_->value, bias, fusion, y);
  check(!output.adds, "a product that can be added");
  const Tensor x = input.read(context.kernels);
  if (weight_->is_loaded() || weight_->parts.empty()) {
    multiply(context, x, *weight_, bias, y);
  } else {
    multiply_parts(context, x, bias, y);
  }
  if (adds_up_) context.group.sum(y, context.kernels);
}

Norm::Norm(std::string path, int64_t size, const NormParams& params, NormTensors tensors,
           const Dimension& dimension, Rank rank)
    : Module(std::move(path)), params_(params), cols_of_ranks_(size) {
  Shard shard = Shard::whole();
  if (dimension.size > 0) {
    shard = Shard::by_rows(dimension);
    cols_of_ranks_ = 0;
    for (int r = 0; r < rank.size; ++r) cols_of_ranks_ += dimension.share({r, rank.size}).count;
  }
  if (tensors.weight)
    weight_ = &add_param(make_vector(this->path() + ".weight", ParamRole::norm,
                                     {{this->path() + ".weight", size, 0, shard}}, rank, 1));
  if (tensors.bias)
    bias_ = &add_param(make_vector(this->path() + ".bias", ParamRole::bias,
                                   {{this->path() + ".bias", size, 0, shard}}, rank, 1));
}

Norm::Norm(std::string path, int64_t head_size, const std::vector<PieceSpec>& weights,
           const NormParams& params, Rank rank)
    : Module(std::move(path)), params_(params), cols_of_ranks_(head_size), own_weights_(true) {
  weight_ = &add_param(make_vector(this->path() + ".weight", ParamRole::bias, weights, rank, 1));
}

Weight Norm::weight() const {
  if (weight_ != nullptr) return weight_->value;
  return {.format = {DType::f32, WeightLayout::rows, ScaleKind::none},
          .rows = 1,
          .cols = cols_of_ranks_};
}

NormParams Norm::params() const {
  NormParams params = params_;
  if (bias_ != nullptr) params.bias = reinterpret_cast<const float*>(bias_->value.data);
  return params;
}

void Norm::forward(const Kernels& kernels, Tensor x, Tensor y) const {
  Weight w = weight();
  if (!own_weights_) return kernels.norm(x, w, params(), y);
  w.cols = cols_of_ranks_;
  for (int64_t first = 0; first < x.cols; first += w.cols) {
    kernels.norm(x.columns(first, w.cols), w, params(), y.columns(first, w.cols));
    w.data += w.cols * static_cast<int64_t>(sizeof(float));
  }
}

std::optional<InputNorm> Norm::of_input() const {
  if (own_weights_) return std::nullopt;
  return InputNorm{weight(), params()};
}

Tensor RowsIn::read(const Kernels& kernels) const {
  if (norm == nullptr) return rows;
  norm->forward(kernels, rows, normed);
  return normed;
}

void Norm::forward_part(const Context& context, Tensor x, Tensor room, Tensor y) const {
  const Kernels& kernels = context.kernels;
  if (context.group.rank().size == 1) return forward(kernels, x, y);
  const Tensor sums{room.data, DType::f32, x.rows, 1, 1};
  kernels.sum_squares(x, sums);
  context.group.sum(sums, kernels);
  NormParams of_rows = params();
  of_rows.squares = sums.row<float>(0);
  of_rows.squares_cols = cols_of_ranks_;
  kernels.norm(x, weight(), of_rows, y);
}

void Norm::forward_add(const Kernels& kernels, Tensor residual, Tensor x, Tensor y) const {
  kernels.add_norm(residual, x, weight(), params(), y);
}

Embedding::Embedding(std::string path, const std::string& source, const Dimension& rows,
                     int64_t size, bool tied_to_head, Rank rank, int64_t stored)
    : Module(std::move(path)), own_(rows.share(rank)), is_cut_(own_.count < rows.size) {
  const WeightLayout layout = tied_to_head ? WeightLayout::packed : WeightLayout::rows;
  const std::string tensor = source + ".weight";
  std::vector<PieceSpec> pieces{
      {tensor, rows.size, size, Shard::by_rows(rows), {.stored = stored > rows.size ? stored : 0}}};
  if (stored > 0 && stored < rows.size) {
    check(rank.size == 1, "a table that lacks rows is one rank's");
    pieces = {{tensor, stored, size}};
    while (stored++ < rows.size)
      pieces.push_back({.source = tensor, .rows = 1, .cols = size, .view = {.again = true}});
  }
  table_ =
      &add_param(make_matrix(this->path() + ".weight", ParamRole::embedding, layout, pieces, rank));
}

void Embedding::look_up(const Kernels& kernels, std::span<const int32_t> ids,
                        std::span<const int32_t> host_ids, Tensor y) const {
  if (table_->stream != nullptr) {
    table_->stream->embed(*table_, host_ids, y, kernels.stream());
  } else {
    kernels.embed(table_->value, ids, y);
  }
}

namespace {

// A rank's part of a table, whose first row is number `first`, as all of it: ids are in the
// device's memory, and are those of all rows.
Weight as_whole(Weight part, int64_t first) {
  const auto before = [&](Plane plane) {
    return plane_offset(part.format, plane, first, part.cols);
  };
  part.rows += first;
  part.data -= before(Plane::codes);
  if (part.scales != nullptr) part.scales -= before(Plane::scales) / sizeof(float);
  if (part.group_scales != nullptr) part.group_scales -= before(Plane::scales);
  if (part.zeros != nullptr) part.zeros -= before(Plane::zeros);
  if (part.outers != nullptr) part.outers -= before(Plane::outers) / sizeof(float);
  return part;
}

}  // namespace

// Looks up neighbouring ids that this rank has.
void Embedding::look_up_own(const Kernels& kernels, std::span<const int32_t> ids,
                            std::span<const int32_t> host_ids, Tensor y) const {
  if (table_->stream == nullptr) return kernels.embed(as_whole(table_->value, own_.begin), ids, y);
  constexpr size_t kMost = 64;
  std::array<int32_t, kMost> rows{};
  for (size_t i = 0; i < host_ids.size(); i += kMost) {
    const std::span<const int32_t> some = host_ids.subspan(i, std::min(kMost, host_ids.size() - i));
    std::ranges::transform(some, rows.begin(),
                           [&](int32_t id) { return static_cast<int32_t>(id - own_.begin); });
    table_->stream->embed(*table_, std::span(rows).first(some.size()),
                          y.rows_from(static_cast<int64_t>(i), std::ssize(some)), kernels.stream());
  }
}

// Each row is one rank's, and zero on the others, so that the sum is exact.
void Embedding::forward(const Context& context, std::span<const int32_t> ids,
                        std::span<const int32_t> host_ids, Tensor y) const {
  const Kernels& kernels = context.kernels;
  if (!is_cut_) return look_up(kernels, ids, host_ids, y);
  const auto is_own = [&](int32_t id) { return id >= own_.begin && id < own_.begin + own_.count; };
  for (size_t i = 0, end = 0; i < host_ids.size(); i = end) {
    const bool own = is_own(host_ids[i]);
    while (end < host_ids.size() && is_own(host_ids[end]) == own) ++end;
    const Tensor rows = y.rows_from(static_cast<int64_t>(i), static_cast<int64_t>(end - i));
    if (own) {
      look_up_own(kernels, ids.subspan(i, end - i), host_ids.subspan(i, end - i), rows);
      continue;
    }
    for (int64_t r = 0; r < rows.rows; ++r)
      kernels.stream().clear(rows.rows_from(r, 1).data,
                             static_cast<uint64_t>(y.cols) * sizeof(float));
  }
  context.group.sum(y, kernels);
}

}  // namespace sluice
