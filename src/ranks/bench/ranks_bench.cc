// Speed of a sum over ranks, beside MPI's own and a copy of the bytes:
//   mpirun -n 2 ranks_bench [FLOATS...]
// Rows of a decode step are as long as the model's hidden size.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "src/base/thread_pool.h"
#include "src/ranks/mpi_group.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using AllReduce = int (*)(const void*, void*, int, void*, void*, void*);

template <class Work>
std::vector<double> seconds_of(const Work& work) {
  constexpr int kRepeats = 5000;
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::ranges::sort(seconds);
  return seconds;
}

void show(const char* what, int64_t floats, const std::vector<double>& seconds) {
  fmt::print("{:>6} floats  {:<22} median {:7.2f} us  p99 {:8.2f} us\n", floats, what,
             seconds[seconds.size() / 2] * 1e6, seconds[seconds.size() / 100 * 99] * 1e6);
}

void measure(const Group& group, int64_t floats) {
  std::vector<float> row(static_cast<size_t>(floats), 0), other(row.size());
  const Tensor y{reinterpret_cast<std::byte*>(row.data()), DType::f32, 1, floats, floats};
  void* const world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
  void* const type = dlsym(RTLD_DEFAULT, "ompi_mpi_float");
  void* const sum = dlsym(RTLD_DEFAULT, "ompi_mpi_op_sum");
  const auto all_reduce = reinterpret_cast<AllReduce>(dlsym(RTLD_DEFAULT, "MPI_Allreduce"));
  ThreadPool pool(1);
  const auto kernels = make_cpu_kernels(Isa::automatic, Compute::f32, pool, {});
  const auto ours = seconds_of([&] { group.sum(y, *kernels); });
  const auto theirs = seconds_of(
      [&] { all_reduce(row.data(), other.data(), static_cast<int>(floats), type, sum, world); });
  const auto copy =
      seconds_of([&] { std::memcpy(other.data(), row.data(), row.size() * sizeof(float)); });
  if (group.rank().rank > 0) return;
  show("Group::sum", floats, ours);
  show("MPI_Allreduce", floats, theirs);
  show("copy", floats, copy);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (!sluice::MpiGroup::is_started()) {
    std::fprintf(stderr, "usage: mpirun -n RANKS ranks_bench [FLOATS...]\n");
    return 2;
  }
  const auto group = sluice::MpiGroup::join(std::chrono::minutes(1));
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoll(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {2048, 3072, 8192, 16384};
  for (const int64_t floats : sizes) sluice::measure(*group, floats);
  group->end();
}
