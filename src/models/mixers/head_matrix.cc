#include "src/models/mixers/head_matrix.h"

#include <utility>

#include "src/nn/weight_stream.h"

namespace sluice {

HeadMatrix::HeadMatrix(std::string path, const Rows& rows, const MixerPlace& place)
    : Module(std::move(path)),
      rows_(rows.all.unit),
      heads_(rows.all.share(place.rank).count / rows_) {
  weight_ =
      &add_param(make_matrix(this->path() + ".weight", ParamRole::linear, WeightLayout::packed,
                             {{place.name(rows.source) + ".weight", rows.all.size, rows.inputs,
                               Shard::by_rows(rows.all), rows.view}},
                             place.rank));
}

void HeadMatrix::multiply(const Kernels& kernels, Tensor x, int64_t x_step, HeadProduct product,
                          Tensor y, int64_t y_step, int64_t tail) const {
  HeadMatrices matrices{.weight = weight_->value, .heads = heads_, .rows = rows_, .tail = tail};
  if (weight_->stream == nullptr)
    return kernels.multiply_heads(x, x_step, matrices, product, y, y_step);
  for (int64_t row = 0; row < weight_->rows;) {
    const WeightTile tile = weight_->stream->tile(*weight_, row, kernels.stream());
    matrices.weight = tile.weight;
    matrices.first_row = tile.first_row;
    kernels.multiply_heads(x, x_step, matrices, product, y, y_step);
    row = tile.first_row + tile.weight.rows;
  }
}

}  // namespace sluice
