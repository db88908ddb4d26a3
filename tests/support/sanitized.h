// What tests leave out where sanitizers make it too slow.
#pragma once

namespace sluice::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr const char* kEmulatedTooSlow =
    "many emulated kernels take minutes under the sanitizers; the plain build runs them";

}  // namespace sluice::test
