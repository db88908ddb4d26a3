#include "kernels/cpu/features.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice {
namespace {

struct Feature {
  std::string_view name;
  bool there;
};

std::string names_where(std::span<const Feature> features, bool there) {
  std::string names;
  for (const Feature& f : features) {
    if (f.there == there) names += fmt::format("{}{}", names.empty() ? "" : ", ", f.name);
  }
  return names;
}

#if defined(__x86_64__)

// Bits of XCR0 (Intel SDM, volume 1, 13.3): what the system saves.
constexpr uint64_t kTileConfigAndData = uint64_t{3} << 17;

bool system_saves_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t{high} << 32 | low) & kTileConfigAndData) == kTileConfigAndData;
}

// Linux gives the 8 KiB of tile data only to a process that asks (Documentation/arch/x86/xstate).
std::string ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
  return fmt::format("the system refuses tile registers: {}", std::strerror(errno));
}

// __builtin_cpu_supports also asks whether the operating system saves the registers.
std::vector<Feature> avx2_features() {
  return {{"avx2", __builtin_cpu_supports("avx2") != 0},
          {"fma", __builtin_cpu_supports("fma") != 0},
          {"f16c", __builtin_cpu_supports("f16c") != 0}};
}
std::vector<Feature> avx512_bf16_features() {
  return {{"avx512f", __builtin_cpu_supports("avx512f") != 0},
          {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
          {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
          {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
          {"avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0},
          {"avx512_vbmi", __builtin_cpu_supports("avx512vbmi") != 0},
          {"avx512_vnni", __builtin_cpu_supports("avx512vnni") != 0}};
}
std::vector<Feature> amx_features() {  // CPUID leaf 7, EDX
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool leaf = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0;
  const auto bit = [&](int i) { return leaf && (d >> i & 1) != 0; };
  return {{"amx_bf16", bit(22)}, {"amx_tile", bit(24)}, {"amx_int8", bit(25)}};
}

std::string missing(std::span<const Feature> features) {
  const std::string names = names_where(features, false);
  return names.empty() ? names : "the CPU lacks " + names;
}

std::string find_missing_for_amx() {
  std::string lacking = missing(amx_features());
  if (lacking.empty()) lacking = missing_for_avx512_bf16();
  if (!lacking.empty()) return lacking;
  if (!system_saves_tiles()) return "the system does not save tile registers";
  return ask_for_tiles();
}

#endif

}  // namespace

#if defined(__x86_64__)

std::string missing_for_avx2() { return missing(avx2_features()); }

std::string missing_for_avx512_bf16() {
  const std::string lacking = missing_for_avx2();
  return lacking.empty() ? missing(avx512_bf16_features()) : lacking;
}

std::string missing_for_amx() {
  static const std::string kMissing = find_missing_for_amx();
  return kMissing;
}

std::string found_features() {
  std::vector<Feature> all;
  for (const auto& features : {avx2_features(), avx512_bf16_features(), amx_features()})
    all.insert(all.end(), features.begin(), features.end());
  return names_where(all, true);
}

bool fetches_into_l1() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || b != signature_AMD_ebx) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kZen5 = 0x1a;  // family: base and extended (AMD APM, volume 3, E.3.2)
  return (a >> 8 & 0xf) + (a >> 20 & 0xff) >= kZen5;
}

#else

std::string missing_for_avx2() { return "the CPU is not an x86-64"; }
std::string missing_for_avx512_bf16() { return missing_for_avx2(); }
std::string missing_for_amx() { return missing_for_avx2(); }
std::string found_features() { return {}; }
bool fetches_into_l1() { return false; }

#endif

}  // namespace sluice
