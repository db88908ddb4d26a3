#include "src/load/spill_writer.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/load/matrix_loader.h"

namespace sluice {
namespace {

// Writes all tensors, or as many as the spill takes.
void write_tensors(const SpillWriting& w) {
  Spill& spill = *w.options.spill;
  MatrixLoader loader({w.index, w.options, w.memory, w.stop});
  const std::vector<SpilledTensor> tensors = spill.layout().tensors;
  for (const SpilledTensor& s : tensors) {
    if (!spill.wants(s.tensor)) continue;
    loader.load(w.plan, s.tensor, [&](const MatrixRows& loaded) {
      spill.add({s.tensor, loaded.first, loaded.rows, 0},
                {.encoded = loaded.encoded, .stats = loaded.stats, .amax = loaded.amax}, {});
      return spill.wants(s.tensor);
    });
  }
}

// Another process has the file's lock until it is done, or ends.
void await_other(const SpillWriting& w) {
  constexpr std::chrono::milliseconds kPause{20};
  if (w.stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
  std::this_thread::sleep_for(kPause);
}

}  // namespace

void write_spill(const SpillWriting& writing) {
  Spill* spill = writing.options.spill;
  if (!needs_spill(writing.options)) return;
  bool waits = false;
  while (!spill->ready()) {
    if (spill->state() == Spill::State::off && spill->is_filled_elsewhere()) {
      if (!std::exchange(waits, true))
        log::info("another process is filling {}: waiting for it",
                  spill->report().paths.front().string());
      await_other(writing);
    }
    if (spill->state() == Spill::State::off) spill->begin_again();
    if (spill->state() == Spill::State::filling)
      log::info("writing {} of weights to the spill cache", format_size(spill->layout().codes_end));
    if (!spill->ready() && spill->state() != Spill::State::off) write_tensors(writing);
  }
}

}  // namespace sluice
