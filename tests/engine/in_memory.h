// A rank's part of a checkpoint in memory, without a planner around it.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "src/device/host_device.h"
#include "src/load/streamer.h"
#include "src/plan/compile.h"
#include "tests/engine/golden.h"

namespace sluice::test {

struct InMemory {
  // `directory`: of golden files. `staging`: what it is read through.
  InMemory(const std::filesystem::path& directory, Rank rank, const Staging& staging)
      : source(open_model(model_in(directory))),
        index(source->index()),
        model(read_model(*source)) {
    build_root(model, rank, &index);
    plan = compile(model, index, {}, staging, {});
    LoadReport report;
    LoadProgress progress;
    Measured measured;
    residents = Streamer(plan, index, *device, *encoder, ledger, measured, {})
                    .load_all(report, progress, {});
  }

  std::unique_ptr<Device> device = make_host_device();
  std::unique_ptr<Encoder> encoder = make_cpu_encoder(Isa::automatic);
  Ledger ledger;
  std::unique_ptr<ModelSource> source;
  io::CheckpointIndex index;
  Model model;
  ReadPlan plan;
  std::vector<Resident> residents;
};

}  // namespace sluice::test
