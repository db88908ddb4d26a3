#include "src/cli/version.h"

#include <fmt/format.h>

#include <string_view>

#include "kernels/kernels.h"

namespace sluice::cli {

std::string version_text() {
  std::string_view best = "reference";
  for (auto [isa, name] : {std::pair{Isa::portable, "portable"}, std::pair{Isa::avx2, "avx2"},
                           std::pair{Isa::avx512_bf16, "avx512_bf16"}}) {
    if (isa_supported(isa)) best = name;
  }
  return fmt::format("sluice {}\ndevices: cpu (kernels {})", SLUICE_VERSION, best);
}

}  // namespace sluice::cli
