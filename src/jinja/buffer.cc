#include "src/jinja/buffer.h"

#include <algorithm>

#include "src/jinja/fault.h"

namespace sluice::jinja {

void Buffer::repeat(std::string_view text, uint64_t count) {
  if (text.empty() || count == 0) return;
  if (count > meter().limits().output_bytes / text.size()) too_long();
  const size_t more = text.size() * count;
  meter().text_steps(more);
  if (text_.size() + more > held_) hold(text_.size() + more);
  for (uint64_t i = 0; i < count; ++i) text_ += text;
}

void Buffer::too_long() const {
  refuse(FaultKind::limit, "makes a text of more than {}",
         format_size(meter().limits().output_bytes));
}

// The string grows by doubling.
void Buffer::hold(size_t size) {
  if (size > meter().limits().output_bytes) too_long();
  const size_t wanted = std::max(2 * held_, std::max<size_t>(size, 64));
  charge_.add(wanted - held_);
  held_ = wanted;
}

}  // namespace sluice::jinja
