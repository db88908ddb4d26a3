// Ranks that meet, of which rank 1 never comes: mpirun -n RANKS late_rank. With an argument they
// wait for what it sends.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "src/ranks/mpi_group.h"

int main(int argc, char**) {
  const auto group = sluice::MpiGroup::join(std::chrono::seconds(1));
  if (group->rank().rank == 1) pause();
  try {
    std::array<std::byte, 8> bytes{};
    if (argc > 1) group->receive(1, bytes);
    if (argc == 1) group->meet({});
  } catch (const sluice::Error& e) {
    std::fprintf(stderr, "sluice: %s\n", e.what());
  }
  return 1;
}
