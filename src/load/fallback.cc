#include "src/load/fallback.h"

#include "src/base/log.h"

namespace sluice {

bool fall_back(const io::ReadError& error, io::Sources& sources, Spill* spill) {
  if (error.kind() != ErrorKind::runtime) return false;
  if (sources.is_extra(error.file)) {
    spill->stop_using_copy(sources.files()[error.file].path, error.what());
    return true;
  }
  if (!sources.give_up(error.file)) return false;
  log::warning("{}; a copy of it is read instead", error.what());
  return true;
}

bool offer_spill(const Spill* spill, io::Sources& sources) {
  std::vector<io::CheckpointFile> copies;
  if (spill != nullptr) copies = spill->files();
  sources.start_reader(copies);
  return !copies.empty();
}

}  // namespace sluice
