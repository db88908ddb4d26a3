#include "src/jinja/meter.h"

#include "src/jinja/fault.h"

namespace sluice::jinja {

void Meter::take(uint64_t bytes) {
  constexpr uint64_t kPiece = 64 * KiB;
  if (bytes > limits_.bytes - bytes_) {
    throw Fault(FaultKind::limit, fmt::format("holds more than {} of values and text at once",
                                              format_size(limits_.bytes)));
  }
  bytes_ += bytes;
  if (!reserve_ || bytes_ <= asked_) return;
  const uint64_t wanted = (bytes_ + kPiece - 1) / kPiece * kPiece;
  try {
    reserve_(wanted);
  } catch (...) {
    bytes_ -= bytes;
    throw;
  }
  asked_ = wanted;
}

void Meter::too_many_steps() const {
  throw Fault(FaultKind::limit,
              fmt::format("takes more than {} steps; it may never end", limits_.steps));
}

void Meter::too_deep() {
  --depth_;
  throw Fault(FaultKind::limit,
              fmt::format("evaluates more than {} levels deep; a macro may call itself for ever",
                          limits_.depth));
}

}  // namespace sluice::jinja
