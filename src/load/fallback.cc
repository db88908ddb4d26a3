#include "src/load/fallback.h"

#include "src/base/log.h"

namespace sluice {

bool fall_back(const io::ReadError& error, io::Sources& sources, Spill* spill) {
  if (error.kind() != ErrorKind::runtime) return false;
  if (error.file >= sources.files().size()) {
    spill->stop_using(error.what(), false);
    return true;
  }
  if (!sources.give_up(error.file)) return false;
  log::warning("{}; a copy of it is read instead", error.what());
  return true;
}

std::vector<io::CheckpointFile> files_to_read(const io::Sources& sources, const Spill* spill) {
  std::vector<io::CheckpointFile> files = sources.files();
  if (spill != nullptr && spill->ready()) files.push_back(spill->file());
  return files;
}

}  // namespace sluice
