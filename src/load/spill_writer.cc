#include "src/load/spill_writer.h"

#include <vector>

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

}  // namespace

void write_spill(const SpillWriting& writing) {
  Spill* spill = writing.options.spill;
  if (!needs_spill(writing.options)) return;
  while (!spill->ready()) {
    if (spill->state() == Spill::State::off) spill->begin_again();
    if (spill->state() == Spill::State::filling)
      log::info("writing {} of weights to the spill cache", format_size(spill->layout().codes_end));
    if (!spill->ready()) write_tensors(writing);
  }
}

}  // namespace sluice
