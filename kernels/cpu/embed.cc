#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const {
  check_embed(table, ids, out);
  for_rows(out, [&](int64_t row) {
    decode_row(table, ids[static_cast<size_t>(row)], out.row<float>(row));
  });
}

}  // namespace sluice
