#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const {
  check_embed(table, ids, out);
  for (int64_t i = 0; i < out.rows; ++i) {
    decode_row(table, ids[static_cast<size_t>(i)], out.row<float>(i));
  }
}

}  // namespace sluice
