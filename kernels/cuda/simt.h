// The interface that kernels use. Their sources are compiled twice: by nvcc, and for tests as
// C++, with an emulator of the GPU in the place of CUDA's headers; this is the only file that tells
// the two apart. The build of the tests names the emulator's header in SLUICE_SIMT_EMULATOR.
//
// Besides CUDA's own names kernels may use, in namespace sluice::cuda:
//   launch(kernel, Launch, stream, args...)   kernel<<<...>>>(args...), its error checked
//   launch_early(...)         the same of a kernel whose threads all call wait_for_earlier(): its
//                             blocks may begin while the stream's kernel before it ends
//   wait_for_earlier()        until all that came before in the stream is done, and can be seen;
//                             before it a thread only reads what no kernel writes
//   shared_memory<T>()        the block's dynamic shared memory, at least 16-byte aligned
//   load_as<V>(p)             one aligned vector load of sizeof(V) bytes (2, 4, 8, 16)
//   load_streaming<V>(p)      the same, of what is read once: it shall not push out other lines
//   store_as(p, v)            one aligned vector store
//   copy_async(to, from, there) 16 bytes to shared memory, or zeros, while the thread goes on
//   copies_begun()            those since the last call belong together
//   wait_for_copies<n>()      until this thread's are there, but for the last n calls' of that
//   exp2_approx(x)            2^x within 2^-22 of it
//   bf16x2_mul(a, b), bf16x2_add(a, b)   products and sums of two bf16 pairs, each rounded to bf16
//   bf16x2_from_floats(lo, hi)  both rounded to bf16, lo in the low half
//   mma_bf16(d, a, b)         d += a b: PTX ISA, "mma.m16n8k16" with .bf16 operands
//   mma_i8(d, a, b)           the same of integers: "mma.m16n8k32" with .s8 operands
//   ldmatrix_x4(r, row), ldmatrix_x4_trans(r, row)   PTX ISA, "ldmatrix" .m8n8.x4.b16
#pragma once

#if defined(SLUICE_SIMT_EMULATOR)
#include SLUICE_SIMT_EMULATOR
#else
#include "kernels/cuda/simt_cuda.h"
#endif
