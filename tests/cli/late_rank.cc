// Ranks that meet, of which rank 1 never comes: mpirun -n RANKS late_rank
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "src/ranks/mpi_group.h"

int main() {
  const auto group = sluice::MpiGroup::join(std::chrono::seconds(1));
  if (group->rank().rank == 1) pause();
  try {
    group->meet({});
  } catch (const sluice::Error& e) {
    std::fprintf(stderr, "sluice: %s\n", e.what());
  }
  return 1;
}
