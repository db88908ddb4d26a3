// The names of kernels/cuda/simt.h, for nvcc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/launch.h"
#include "src/device/cuda/check_cuda.h"

namespace sluice::cuda {

// Returns whether the kernel was compiled for GPUs that have wait_for_earlier(): all are, or none.
template <class... Params>
bool may_start_early(void (*kernel)(Params...)) {
  static const bool may = [kernel] {
    cudaFuncAttributes compiled;
    check_cuda(cudaFuncGetAttributes(&compiled, kernel), "asking for a kernel");
    return compiled.ptxVersion >= 90;
  }();
  return may;
}

template <class... Params, class... Args>
void launch_as(void (*kernel)(Params...), const Launch& at, cudaStream_t stream, bool early,
               Args... args) {
  constexpr uint32_t kWithoutAsking = 48 * 1024;  // CUDA C++ Programming Guide, "Shared Memory"
  if (at.shared_bytes > kWithoutAsking) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(at.shared_bytes)),
               "shared memory for a kernel");
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(at.grid.x, at.grid.y, at.grid.z);
  config.blockDim = dim3(at.block.x, at.block.y, at.block.z);
  config.dynamicSmemBytes = at.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...),
             "launching a kernel");
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Launch& at, cudaStream_t stream, Args... args) {
  launch_as(kernel, at, stream, false, args...);
}
template <class... Params, class... Args>
void launch_early(void (*kernel)(Params...), const Launch& at, cudaStream_t stream, Args... args) {
  launch_as(kernel, at, stream, may_start_early(kernel), args...);
}

// CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization". The next kernel
// may take what room there is as soon as all blocks of this one have begun.
__device__ __forceinline__ void wait_for_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class T>
__device__ T& shared_memory() {
  extern __shared__ uint4 sluice_shared[];
  return *reinterpret_cast<T*>(sluice_shared);
}

// The unsigned integer, or vector of them, with as many bytes.
template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = uint8_t;
};
template <>
struct Word<2> {
  using Type = uint16_t;
};
template <>
struct Word<4> {
  using Type = uint32_t;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

template <class V>
__device__ __forceinline__ V load_as(const void* p) {
  const auto word = *static_cast<const typename Word<sizeof(V)>::Type*>(p);
  V v;
  memcpy(&v, &word, sizeof v);
  return v;
}
template <class V>
__device__ __forceinline__ V load_streaming(const void* p) {
  const auto word = __ldcs(static_cast<const typename Word<sizeof(V)>::Type*>(p));
  V v;
  memcpy(&v, &word, sizeof v);
  return v;
}
template <class V>
__device__ __forceinline__ void store_as(void* p, const V& v) {
  typename Word<sizeof(V)>::Type word;
  memcpy(&word, &v, sizeof v);
  *static_cast<typename Word<sizeof(V)>::Type*>(p) = word;
}

// PTX ISA, "cp.async"
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(at), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copies_begun() { asm volatile("cp.async.commit_group;"); }
template <int kLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}

__device__ __forceinline__ float exp2_approx(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ __forceinline__ uint32_t bf16x2_from_floats(float low, float high) {
  uint32_t pair;  // PTX ISA, "cvt": the first operand becomes the upper half
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ uint32_t bf16x2_mul(uint32_t a, uint32_t b) {
  constexpr uint32_t kMinusZero = 0x80008000;  // adding it changes nothing, the sign of 0 neither
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(kMinusZero));
  return product;
}

__device__ __forceinline__ uint32_t bf16x2_add(uint32_t a, uint32_t b) {
  constexpr uint32_t kOnes = 0x3f803f80;  // GPUs before sm_90 have no sum of pairs
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(kOnes), "r"(b));
  return sum;
}

__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  // volatile: all lanes take part, so it may not move into a branch or be left out.
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_i8(int (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

}  // namespace sluice::cuda
