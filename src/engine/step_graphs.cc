#include "src/engine/step_graphs.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace sluice {

void StepGraphs::run(const LaunchShape& shape, const std::function<void()>& work) {
  auto found = std::ranges::find(known_, shape, &Known::shape);
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    if (found->graph == nullptr && !capture(*found, work)) return work();
    ++stats_.launched;
    return stream_.launch(*found->graph);
  }
  if (offered_) {
    if (known_.size() == kMost) forget(std::prev(known_.end()));
    known_.push_front({shape, nullptr, {}});
  }
  work();
}

bool StepGraphs::capture(Known& known, const std::function<void()>& work) {
  if (!offered_) return false;
  std::unique_ptr<DeviceGraph> graph = stream_.capture(work);
  offered_ = graph != nullptr;
  if (!offered_) return false;
  std::optional<Lease> memory;
  while (!(memory = ledger_.try_lease(device_.place(), Use::runtime, "graphs", graph->bytes()))) {
    auto oldest = std::find_if(known_.rbegin(), known_.rend(),
                               [](const Known& k) { return k.graph != nullptr; });
    offered_ = oldest != known_.rend();
    if (!offered_) return false;
    forget(std::next(oldest).base());
  }
  known.graph = std::move(graph);
  known.memory = *std::move(memory);
  ++stats_.captured;
  return true;
}

// Waits for the stream first: it may still run the graph.
void StepGraphs::forget(std::list<Known>::iterator known) {
  if (known->graph != nullptr) stream_.synchronize();
  known_.erase(known);
}

}  // namespace sluice
