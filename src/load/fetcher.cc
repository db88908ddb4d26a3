#include "src/load/fetcher.h"

#include <algorithm>

#include "src/base/log.h"

namespace sluice {

Fetcher::Fetcher(const FetcherSetup& setup) : setup_(setup), sources_(setup.index) {}

void Fetcher::close() {
  queue_.reset();
  if (reader_) past_ += reader_->stats();
  reader_.reset();
  in_flight_.clear();
  packed_ = nullptr;
}

void Fetcher::open(const Ring& ring) {
  close();
  Spill* spill = setup_.options.spill;
  const io::SystemCalls* calls = setup_.options.calls;
  while (!reader_) {
    const std::vector<io::CheckpointFile> copies =
        spill != nullptr ? spill->files() : std::vector<io::CheckpointFile>();
    sources_.start_reader(copies);
    packed_ = copies.empty() ? nullptr : spill;
    try {
      reader_ = io::open_reader(sources_.files(), ring.memory,
                                {.kind = setup_.options.reader,
                                 .slot_bytes = ring.slot_bytes,
                                 .chunk_bytes = ring.request_bytes,
                                 .most_extents = setup_.plan.most_extents()},
                                calls != nullptr ? *calls : io::system_calls());
    } catch (const io::ReadError& e) {
      fall_back(e);
    }
  }
  try {
    queue_ =
        std::make_unique<EncodeQueue>(EncodeSetup{.plan = setup_.plan,
                                                  .encoder = setup_.encoder,
                                                  .weights = setup_.weights,
                                                  .measured = setup_.measured,
                                                  .slots = ring.memory,
                                                  .slot_bytes = ring.slot_bytes,
                                                  .threads = setup_.options.threads,
                                                  .packed = packed_,
                                                  .fills = setup_.fills_spill ? spill : nullptr,
                                                  .device = setup_.device,
                                                  .row_amax = setup_.row_amax});
  } catch (...) {  // without threads: nothing is open then
    close();
    throw;
  }
}

// Throws `error` again when there is no other way to the same bytes: another copy of a file, or,
// of what is in the spill cache, the checkpoint.
void Fetcher::fall_back(const io::ReadError& error) {
  if (error.kind() != ErrorKind::runtime) throw error;
  if (sources_.is_extra(error.file)) {
    setup_.options.spill->stop_using_copy(sources_.files()[error.file].path, error.what());
    return;
  }
  if (!sources_.give_up(error.file)) throw error;
  log::warning("{}; a copy of it is read instead", error.what());
}

// The one answer to a source that fails. Returns false where one has failed, now or before.
template <class Body>
bool Fetcher::guarded(const Body& body) {
  if (reader_ == nullptr) return false;
  try {
    body();
    return true;
  } catch (const io::ReadError& e) {
    close();
    fall_back(e);
  } catch (const SpillDamaged& e) {
    close();
    setup_.options.spill->stop_using(e.what(), true);
  }
  return false;
}

void Fetcher::submit(const Fetch& fetch, uint64_t request_bytes) {
  const bool is_packed = fetch.form == Fetch::Form::packed;
  const uint32_t source =
      sources_.choose(is_packed ? sources_.extra_file() : fetch.file, fetch.length);
  OtherExtents more = other_extents(setup_.plan, packed(), fetch);
  for (uint32_t k = 0; k < more.count; ++k) {
    io::Extent& extent = more.extents[k];
    extent.file = sources_.choose(is_packed ? sources_.extra_file() : extent.file, extent.length);
  }
  in_flight_.push_back({fetch.tag, source, more});
  const io::ReadRequest request{source,    fetch.offset,  fetch.length,
                                fetch.tag, request_bytes, more.all()};
  guarded([&] { reader_->submit(request); });
}

Fetcher::Arrival Fetcher::arrived(const io::ReadResult& read) {
  auto found = std::ranges::find(in_flight_, read.tag, &InFlight::tag);
  uint64_t bytes = read.bytes.size();
  sources_.arrived(found->source, read.bytes.size());
  for (const io::Extent& extent : found->more.all()) {
    sources_.arrived(extent.file, extent.length);
    bytes += extent.length;
  }
  in_flight_.erase(found);
  if (setup_.options.timeline != nullptr) setup_.options.timeline->add(bytes);
  return {Arrival::Kind::read, read};
}

Fetcher::Arrival Fetcher::poll() {
  if (reader_ != nullptr && in_flight_.empty()) return {};
  std::optional<io::ReadResult> read;
  if (!guarded([&] { read = reader_->poll(); })) return {Arrival::Kind::restarted};
  return read ? arrived(*read) : Arrival{};
}

Fetcher::Arrival Fetcher::wait() {
  io::ReadResult read;
  if (!guarded([&] { read = reader_->wait(); })) return {Arrival::Kind::restarted};
  return arrived(read);
}

void Fetcher::encode(const Fetch& fetch, const io::ReadResult& read) {
  queue_->push({.fetch = fetch, .read = read});
}

std::optional<std::vector<ArrivedFetch>> Fetcher::take_encoded(bool block) {
  std::vector<ArrivedFetch> finished;
  if (!guarded([&] { finished = queue_->take_finished(block); })) return std::nullopt;
  return finished;
}

std::optional<Weight> Fetcher::in_place(const Move& move, const io::ReadResult& read) {
  std::optional<Weight> weight;
  guarded([&] { weight = packed_->weight(move, read); });
  return weight;
}

io::ReaderStats Fetcher::stats() const {
  io::ReaderStats stats = past_;
  if (reader_) stats += reader_->stats();
  return stats;
}

}  // namespace sluice
