// A file of an output directory, which is written unless an earlier process has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/lanes_output.h"
#include "src/load/output_directory.h"

namespace sluice {

struct OutputFile {
  std::string name;
  std::vector<io::OutputLane> lanes;  // as of LanesOutput
  uint64_t bytes = 0;
};

// `memory`: as of LanesOutput. `verify`: it is read back. Returns whether the file was there: else
// `fill` has written it. Error(runtime) where it cannot be written, or reads back otherwise.
bool write_output_file(const OutputFile& file, OutputDirectory& out, std::span<std::byte> memory,
                       bool verify, const std::stop_token& stop,
                       const std::function<void(io::LanesOutput&)>& fill);

}  // namespace sluice
