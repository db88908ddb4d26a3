#include "kernels/reference/reference.h"
#include "quant/order_codes.h"

namespace sluice {

EncodeStats ReferenceEncoder::encode(const EncodeArgs& args) const {
  return encode_reference(args);
}

float ReferenceEncoder::absolute_max(const std::byte* source, DType stored, int64_t source_stride,
                                     int64_t rows, int64_t cols) const {
  return sluice::absolute_max(source, stored, source_stride, rows, cols);
}

void ReferenceEncoder::order_columns(const Weight& to, int64_t first_row, int64_t rows,
                                     const int32_t* order) const {
  sluice::order_columns(to, first_row, rows, order, order_codes);
}

}  // namespace sluice
