// Ranks of which rank 1 never comes: mpirun -n RANKS late_rank meet|receive|sum.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "src/ranks/mpi_group.h"

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "meet";
  const auto group = sluice::MpiGroup::join(std::chrono::seconds(1));
  if (group->rank().rank == 1) pause();
  try {
    std::array<std::byte, 8> bytes{};
    if (what == "meet") group->meet({});
    if (what == "receive") group->receive(1, bytes);
    if (what == "sum") group->all_gather(bytes);
  } catch (const sluice::Error& e) {
    std::fprintf(stderr, "sluice: %s\n", e.what());
  }
  return 1;
}
