#include "src/load/load_pass.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace sluice {

void refuse_damaged(const io::CheckpointIndex& index, const io::StoredTensor& tensor,
                    const EncodeStats& stats) {
  if (stats.not_finite == 0) return;
  index.refuse_changes();
  fail(ErrorKind::refused, "{}: {} holds {} NaN or infinite values: the checkpoint is damaged",
       io::printable(index.files()[tensor.file].path.string()), tensor.name, stats.not_finite);
}

LoadPass::LoadPass(std::vector<Fetch> order, Fetcher& fetcher, ReadPace& pace,
                   LoadProgress& progress, RowExchange* exchange)
    : order_(std::move(order)),
      fetcher_(fetcher),
      pace_(pace),
      progress_(progress),
      exchange_(exchange) {
  progress.bytes_total = 0;
  progress.bytes_done = 0;
  progress.units_done = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    order_[i].tag = i;
    fetches_left_.resize(std::max<size_t>(fetches_left_.size(), order_[i].unit + 1));
    ++fetches_left_[order_[i].unit];
    progress.bytes_total += order_[i].length;
  }
}

bool LoadPass::run(const std::stop_token& stop) {
  const bool complete = read_all(stop);
  return exchange_ != nullptr ? exchange_->ranks().end(complete) : complete;
}

bool LoadPass::read_all(const std::stop_token& stop) {
  for (size_t done = 0; done < order_.size();) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    submit();
    if (fetcher_.in_flight() > 0 && !receive()) return false;
    const auto encoded = fetcher_.take_encoded(fetcher_.in_flight() == 0);
    if (!encoded) return false;
    for (const ArrivedFetch& f : *encoded) {
      fetcher_.release(f.read);
      progress_.bytes_done += f.fetch.length;
      if (--fetches_left_[f.fetch.unit] == 0) ++progress_.units_done;
      ++done;
    }
  }
  return true;
}

void LoadPass::submit() {
  const size_t most = pace_.most_in_flight();
  for (; submitted_ < order_.size() && fetcher_.in_flight() < most && fetcher_.free_slots() > 0;
       ++submitted_)
    fetcher_.submit(order_[submitted_], pace_.request_bytes());
}

bool LoadPass::receive() {
  const size_t in_flight = fetcher_.in_flight();
  const Fetcher::Arrival arrival = fetcher_.wait();
  if (arrival.kind == Fetcher::Arrival::Kind::restarted) return false;
  pace_.arrived(arrival.read.bytes.size(), seconds(), in_flight);
  if (order_[arrival.read.tag].exchanged) {
    arrived_.emplace(arrival.read.tag, arrival.read);
    return exchange_arrived();
  }
  fetcher_.encode(order_[arrival.read.tag], arrival.read);
  return true;
}

// Exchanges what has arrived, in the order of all ranks. What comes next has been submitted before
// whatever waits here for it, so that its slot is not among those that wait.
bool LoadPass::exchange_arrived() {
  for (; !arrived_.empty(); ++next_exchange_) {
    if (!order_[next_exchange_].exchanged) continue;
    const auto next = arrived_.find(next_exchange_);
    if (next == arrived_.end()) return true;
    const std::optional<io::ReadResult> own = exchange_->run(order_[next_exchange_], next->second);
    if (!own) return false;
    arrived_.erase(next);
    fetcher_.encode(order_[next_exchange_], *own);
  }
  return true;
}

double LoadPass::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace sluice
