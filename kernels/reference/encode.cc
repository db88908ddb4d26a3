#include "kernels/reference/reference.h"

namespace sluice {

EncodeStats ReferenceEncoder::encode(const EncodeArgs& args) const {
  return encode_reference(args);
}

float ReferenceEncoder::absolute_max(const std::byte* source, DType stored, int64_t source_stride,
                                     int64_t rows, int64_t cols) const {
  return sluice::absolute_max(source, stored, source_stride, rows, cols);
}

}  // namespace sluice
