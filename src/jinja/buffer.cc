#include "src/jinja/buffer.h"

#include <algorithm>

#include "src/jinja/fault.h"

namespace sluice::jinja {

// The string grows by doubling.
void Buffer::hold(size_t size) {
  const uint64_t limit = meter().limits().output_bytes;
  if (size > limit) refuse(FaultKind::limit, "makes a text of more than {}", format_size(limit));
  const size_t wanted = std::max(2 * held_, std::max<size_t>(size, 64));
  charge_.add(wanted - held_);
  held_ = wanted;
}

}  // namespace sluice::jinja
