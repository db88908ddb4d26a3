#include "src/cli/version.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "kernels/cpu/features.h"
#include "kernels/kernels.h"
#include "src/base/units.h"
#include "src/device/find_gpus.h"

namespace sluice::cli {
namespace {

// Returns the CPU's name as the system reports it; "" where it reports none.
std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

// Each instruction set, whether this machine has it, and which kernels use it.
std::string kernels_text(Isa chosen) {
  std::string text;
  if (const std::string cpu = cpu_name(); !cpu.empty()) text += fmt::format("\ncpu: {}", cpu);
  text += fmt::format("\nfeatures found: {}\ninstruction sets:", found_features());
  for (Isa isa : all_isas()) {
    const std::string missing = isa_missing(isa);
    text += fmt::format("\n  {:12} {}", isa_name(isa), missing.empty() ? "yes" : "no: " + missing);
  }
  text += fmt::format("\nkernels, by the best of these ({}):", isa_name(chosen));
  for (const KernelChoice& choice : kernel_choices(chosen))
    text += fmt::format("\n  {:32} {}", choice.ops, choice.functions);
  return text;
}

std::string gpus_text() {
  const FoundGpus found = find_gpus();
  if (found.gpus.empty()) return fmt::format("\ngpus: none: {}", found.why_none);
  std::string text = "\ngpus:";
  for (size_t i = 0; i < found.gpus.size(); ++i) {
    const DeviceInfo& gpu = found.gpus[i];
    text += fmt::format("\n  cuda:{}  {}, compute capability {}.{}, {} of memory", i, gpu.name,
                        gpu.compute_capability / 10, gpu.compute_capability % 10,
                        format_size(gpu.total_bytes));
  }
  return text;
}

}  // namespace

std::string version_text(bool verbose) {
  const std::vector<Isa> isas = all_isas();
  const Isa best = *std::find_if(isas.begin(), isas.end(), isa_supported);
  std::string text =
      fmt::format("sluice {}\ndevices: cpu (kernels {})", SLUICE_VERSION, isa_name(best));
  if (verbose) text += kernels_text(best) + gpus_text();
  return text;
}

}  // namespace sluice::cli
