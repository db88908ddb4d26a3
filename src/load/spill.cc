#include "src/load/spill.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "quant/encode_groups.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A rank's part of the model.
std::string part_name(const SpillKey& key) {
  const std::string name = fmt::format("{}/{}", key.rank.rank, key.rank.size);
  return key.part.empty() ? name : name + " " + key.part;
}

// One file for each checkpoint directory, scheme, rank and layout of matrices (a GPU has another
// than a CPU): what a changed checkpoint left behind is replaced.
std::string file_name(const SpillKey& key, const ReadPlan& plan) {
  TextChecksum identity;
  identity.add(fmt::format("{}\n{}\n{}\n{}\n", key.model.string(), key.scheme, part_name(key),
                           static_cast<int>(plan.matrix_layout)));
  std::string model = io::printable(key.model.filename().string()).substr(0, 64);
  std::string scheme = key.scheme.find('=') == std::string::npos ? key.scheme : "rules";
  if (scheme.empty()) scheme = "none";
  return fmt::format("{}-{}-{}.spill", model, scheme, identity.digits().substr(0, 16));
}

std::string fingerprint_of(const SpillKey& key, const io::CheckpointIndex& checkpoint) {
  TextChecksum text;
  text.add(fmt::format("{} {}\n", key.scheme, part_name(key)));
  text.add(checkpoint.identity());
  return text.digits();
}

// Returns the sizes that a record claims, where an index with `left` more bytes can have them.
std::optional<SpilledTensor> sizes_of(const SpillRecord& record, uint64_t left) {
  constexpr uint32_t kMostName = 64 * KiB;
  SpilledTensor s{.planes = record.planes,
                  .panels = record.panels,
                  .panel_scales = record.panel_scales,
                  .packing = record.packing,
                  .name_bytes = record.name_bytes};
  if (s.planes == 0 || s.planes > s.begin.size() || s.panels == 0 ||
      s.panels > left / sizeof(uint64_t) / s.planes ||
      s.panel_scales > left / sizeof(float) / s.panels || s.name_bytes > kMostName)
    return std::nullopt;
  std::copy_n(record.begin.begin(), s.begin.size(), s.begin.begin());
  std::copy_n(record.panel_bytes.begin(), s.panel_bytes.size(), s.panel_bytes.begin());
  return s;
}

// Returns whether the planes lie between the header and the index of a file.
bool are_in_file(const SpilledTensor& s, uint64_t index_offset) {
  for (size_t p = 0; p < s.planes; ++p) {
    const uint64_t bytes = s.panels * s.panel_bytes[p];
    if (s.begin[p] < kSpillHeaderBytes || s.begin[p] > index_offset ||
        bytes > index_offset - s.begin[p])
      return false;
  }
  return true;
}

// The tensors of a plan that a file may have.
class TensorsByName {
 public:
  explicit TensorsByName(const ReadPlan& plan) : plan_(plan), all_(spill_layout(plan).tensors) {
    for (size_t i = 0; i < all_.size(); ++i)
      entries_.emplace_back(hash(spill_name(plan, all_[i].tensor)), i);
    std::ranges::sort(entries_);
  }

  // Returns the tensor of this name that is packed as `theirs`, at their place; each once.
  std::optional<SpilledTensor> take(const std::string& name, const SpilledTensor& theirs) {
    const std::pair<uint64_t, size_t> first{hash(name), 0};
    for (auto e = std::ranges::lower_bound(entries_, first);
         e != entries_.end() && e->first == first.first; ++e) {
      SpilledTensor& s = all_[e->second];
      if (s.panels == 0 || s.packing != theirs.packing || s.planes != theirs.planes ||
          s.panels != theirs.panels || s.panel_bytes != theirs.panel_bytes ||
          s.panel_scales != theirs.panel_scales || spill_name(plan_, s.tensor) != name)
        continue;
      SpilledTensor taken = std::exchange(s, {});
      taken.begin = theirs.begin;
      return taken;
    }
    return std::nullopt;
  }

 private:
  static uint64_t hash(const std::string& name) {
    return checksum64(std::as_bytes(std::span(name)));
  }

  const ReadPlan& plan_;
  std::vector<SpilledTensor> all_;
  std::vector<std::pair<uint64_t, size_t>> entries_;  // hash of the name, place in all_
};

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
}

}  // namespace

Spill::Spill(const ReadPlan& plan, const io::CheckpointIndex& index, const SpillKey& key,
             const SpillOptions& options, Ledger& ledger, const io::SystemCalls& calls)
    : plan_(plan),
      checkpoint_(index),
      calls_(calls),
      options_(options),
      is_needed_(std::ranges::any_of(
          plan.tensors, [](const TensorPlan& t) { return t.origin == Origin::spill; })),
      key_(key) {
  layout_ = spill_layout(plan);
  if (options.directories.empty() || layout_.tensors.empty()) {
    layout_ = {{}, std::vector<int32_t>(plan.tensors.size(), -1)};
    return;
  }
  uint64_t room = 0;
  for (const fs::path& directory : options.directories) {
    paths_.push_back(directory / file_name(key, plan));
    room = std::max(room, room_at(paths_.back(), layout_).bytes);
  }
  report_.paths = paths_;
  index_ = Buffer(ledger, Use::staging, "spill index", layout_.index_bytes, Buffer::Touch::now);
  lists_ = ledger.lease(Place::host, Use::staging, "spill index", layout_.list_bytes());
  layout_ = spill_layout(plan, room);
  try {
    fingerprint_ = fingerprint_of(key_, checkpoint_);
    if (open_existing()) return;
    begin_filling();
  } catch (const Error& e) {
    if (is_needed_) throw;
    std::lock_guard lock(mutex_);
    turn_off(e.what(), false);
  }
}

bool Spill::has_room(const ReadPlan& plan, const io::CheckpointIndex& index, const SpillKey& key,
                     const SpillOptions& options, const io::SystemCalls& calls) {
  const uint64_t needed = needed_file_bytes(plan);
  return std::ranges::any_of(options.directories, [&](const fs::path& directory) {
    const fs::path path = directory / file_name(key, plan);
    const uint64_t limit = spill_limit(directory, options.limit, calls);
    if (spill_room(path, needed, limit, calls).bytes >= needed) return true;
    const std::optional<SpillHeader> there = read_spill_header(path);
    return there && there->fingerprint == fingerprint_of(key, index) &&
           there->index_offset + there->index_bytes <= limit;
  });
}

bool Spill::open_existing() {
  for (const fs::path& path : paths_) {
    try {
      if (open_copy(path)) mark_spill_used(path);
    } catch (const Error& e) {  // as if there were none
      log::info("{}", e.what());
    }
  }
  if (copies_.empty()) return false;
  report_.bytes = copies_.front().size;
  report_.outcome = "reused";
  expect_panels();
  const bool verifies = std::exchange(options_.verify, false);
  if (!layout_.absent.empty() && !verifies) go_on_growing();
  for (size_t i = 0; i < layout_.absent.size() && verifies; ++i)
    if (layout_.absent[i] != 0) panels_left_ -= std::exchange(left_[i], 0);
  state_ = verifies ? State::verifying : State::ready;
  return true;
}

bool Spill::has_what_is_needed(const SpillLayout& layout) const {
  for (uint32_t t = 0; t < plan_.tensors.size(); ++t) {
    const TensorPlan& tensor = plan_.tensors[t];
    if (tensor.origin == Origin::spill && tensor.stored->bytes > 0 && layout.find(t) == nullptr)
      return false;
  }
  return true;
}

// A disk or a memory that damages every file that it gets is no longer given any.
void Spill::begin_again() {
  constexpr int kMost = 3;
  const std::string why = report().outcome;
  if (!std::exchange(is_filled_elsewhere_, false) && ++attempts_ > kMost)
    fail(ErrorKind::runtime, "{}: weights cannot be streamed from it: {}", paths_.front().string(),
         why);
  try {
    if (open_existing()) return;
    begin_filling();
  } catch (const Error& e) {
    fail(ErrorKind::runtime, "{}: {}; it could not be written again: {}", paths_.front().string(),
         why, e.what());
  }
}

// Reads what an index has of the plan's tensors, into ours: nothing where it is damaged, or was not
// written by us. It may be anybody's: at worst they are not ours.
std::optional<SpillLayout> Spill::read_index(const io::Fd& fd, const fs::path& path,
                                             const SpillHeader& header) {
  TensorsByName ours(plan_);
  SpillIndexReader index(fd, path, header);
  SpillLayout found{{}, std::vector<int32_t>(plan_.tensors.size(), -1), header.index_offset};
  for (uint64_t i = 0; i < header.tensors; ++i) {
    SpillRecord record;
    if (!index.read(std::as_writable_bytes(std::span(&record, 1)))) return std::nullopt;
    std::optional<SpilledTensor> theirs = sizes_of(record, index.left());
    if (!theirs) return std::nullopt;
    const uint64_t end = theirs->place_in_index(0);
    std::string name(theirs->scales - theirs->name, '\0');
    if (!index.read(std::as_writable_bytes(std::span(name)))) return std::nullopt;
    name.resize(record.name_bytes);
    std::optional<SpilledTensor> s = ours.take(name, *theirs);
    if (!s) {
      if (!index.skip(end - theirs->scales)) return std::nullopt;
      continue;
    }
    const uint64_t at = found.index_bytes;
    found.index_bytes = s->place_in_index(at);
    if (found.index_bytes > index_.bytes().size() || !are_in_file(*s, header.index_offset) ||
        !index.read(index_.bytes().subspan(s->scales, end - theirs->scales)))
      return std::nullopt;
    *this->at<SpillRecord>(s->record) = record;
    found.entry_of[s->tensor] = static_cast<int32_t>(found.tensors.size());
    found.tensors.push_back(*s);
  }
  if (index.left() > 0 || index.checksum() != header.index_checksum) return std::nullopt;
  return found;
}

// Opens a copy if it is usable. A run with another plan or budget may have chosen other tensors:
// its file is used if it saves the sweep about as much as our choice would.
bool Spill::open_copy(const fs::path& path) {
  constexpr double kAboutAsMuch = 1.05;
  std::optional<SpillHeader> header = read_spill_header(path);
  if (!header || header->fingerprint != fingerprint_) return false;
  io::Fd fd = io::open_regular(path);
  io::CheckpointFile file = io::describe_file(fd, path, path.filename().string());
  if (file.size != header->index_offset + header->index_bytes ||
      file.size > spill_limit(path.parent_path(), options_.limit, calls_))
    return false;
  if (copies_.empty()) {
    std::optional<SpillLayout> theirs = read_index(fd, path, *header);
    posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    auto sweep = static_cast<double>(sweep_bytes(plan_, layout_));
    if (!theirs || !has_what_is_needed(*theirs) ||
        static_cast<double>(sweep_bytes(plan_, *theirs)) > kAboutAsMuch * sweep)
      return false;
    for (const SpilledTensor& s : theirs->tensors)
      theirs->absent.push_back(at<SpillRecord>(s.record)->is_absent != 0 ? 1 : 0);
    const bool is_whole = std::ranges::count(theirs->absent, 0) == std::ssize(theirs->absent);
    if (is_whole) theirs->absent.clear();
    if (!is_whole && is_needed_) return false;
    layout_ = std::move(*theirs);
    header_ = *header;
  } else if (header->index_checksum != header_.index_checksum ||
             header->index_offset != header_.index_offset ||
             header->index_bytes != header_.index_bytes) {
    return false;  // copies with one index hold the same codes: it has their checksums
  }
  file.ctime_ns.reset();                                      // every use sets its access time
  if (!layout_.absent.empty()) file.mtime_ns = io::kAnyTime;  // this process or another adds to it
  copies_.push_back(file);
  return true;
}

void Spill::write_records() {
  for (const SpilledTensor& s : layout_.tensors) {
    SpillRecord& record = *at<SpillRecord>(s.record);
    std::ranges::copy(s.begin, record.begin.begin());
    std::ranges::copy(s.panel_bytes, record.panel_bytes.begin());
    record.panels = s.panels;
    record.panel_scales = s.panel_scales;
    record.packing = s.packing;
    record.planes = s.planes;
    record.name_bytes = s.name_bytes;
    std::ranges::copy(spill_name(plan_, s.tensor), at<char>(s.name));
  }
}

void Spill::expect_panels() {
  seen_.assign(layout_.index_bytes / sizeof(uint64_t), false);
  panels_left_ = 0;
  left_.clear();
  for (const SpilledTensor& s : layout_.tensors) {
    panels_left_ += s.panels;
    left_.push_back(static_cast<uint32_t>(s.panels));
  }
}

// After the file of an earlier run was opened, in which tensors are absent: adds to it, unless
// another process does, or it has tensors of other plans, which its index has to keep.
void Spill::go_on_growing() {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < layout_.tensors.size(); ++i) {
    const SpilledTensor& s = layout_.tensors[i];
    if (layout_.absent[i] != 0) {
      *at<SpillRecord>(s.record) = {};
      continue;
    }
    std::fill_n(seen_.begin() + static_cast<std::ptrdiff_t>(s.checksums / sizeof(uint64_t)),
                s.panels, true);
    panels_left_ -= std::exchange(left_[i], 0);
  }
  if (layout_.tensors.size() != header_.tensors || layout_.index_bytes != header_.index_bytes)
    return;
  for (const io::CheckpointFile& copy : copies_) {
    auto file = io::NewFile::reopen(copy.path, calls_);
    if (!file) return fresh_.clear();
    fresh_.emplace_back(copy.path, std::make_shared<io::NewFile>(std::move(*file)));
  }
  grows_ = true;
}

// Writes down which tensors are there.
void Spill::note_complete() {
  write_records();
  for (size_t i = 0; i < layout_.tensors.size(); ++i)
    at<SpillRecord>(layout_.tensors[i].record)->is_absent = left_[i] > 0 ? 1 : 0;
}

SpillHeader Spill::header() const {
  SpillHeader header;
  header.model = key_.model.string();
  header.scheme = key_.scheme;
  header.fingerprint = fingerprint_;
  header.tensors = layout_.tensors.size();
  header.index_offset = layout_.codes_end;
  return header;
}

void Spill::use_what_is_there() {
  std::lock_guard lock(mutex_);
  const bool appears = state() == State::filling && !is_needed_;
  if (!appears && !(ready() && grows_)) return;
  if (appears && std::ranges::count(left_, 0U) == 0) return;
  layout_.absent.resize(left_.size());
  for (size_t i = 0; i < left_.size(); ++i) layout_.absent[i] = left_[i] > 0 ? 1 : 0;
  if (!appears) return;
  note_complete();
  finish(true);
  grows_ = ready();
}

void Spill::stop_growing() {
  std::lock_guard lock(mutex_);
  if (!grows_.exchange(false)) return;
  if (has_more_ && ready()) save_index();
  fresh_.clear();
}

// A file whose index is not written whole is no spill file: it is written anew.
void Spill::save_index() {
  try {
    checkpoint_.refuse_changes();
    note_complete();
    for (const FreshCopy& copy : fresh_) {
      copy.second->sync();
      write_spill_index(*copy.second, header(), index_.bytes().first(layout_.index_bytes));
      copy.second->sync();
    }
  } catch (const Error& e) {
    log::info("{}", e.what());
  }
}

Spill::~Spill() { stop_growing(); }

// Room for all tensors; where there is not enough, for those that the plan needs.
SpillRoom Spill::room_at(const fs::path& path, const SpillLayout& all) const {
  const uint64_t limit = spill_limit(path.parent_path(), options_.limit, calls_);
  SpillRoom room = spill_room(path, all.file_bytes(), limit, calls_);
  const uint64_t needed = is_needed_ ? needed_file_bytes(plan_) : 0;
  return room.bytes >= needed ? room : spill_room(path, needed, limit, calls_);
}

// Bytes that a copy may have.
uint64_t Spill::make_room(const fs::path& path) const {
  const fs::path directory = path.parent_path();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_errno(error.value(), "{}: cannot be created", directory.string());
  const SpillRoom room = room_at(path, spill_layout(plan_));
  if (!has_what_is_needed(spill_layout(plan_, room.bytes)))
    fail(ErrorKind::no_fit,
         "{}: weights that are stored with their dimensions exchanged need a copy of {} to be "
         "streamed from, and there is room for {}: give more memory, a larger --spill-limit, or "
         "another --spill-dir",
         directory.string(), format_size(needed_file_bytes(plan_)), format_size(room.bytes));
  if (spill_layout(plan_, room.bytes).tensors.empty())
    fail(ErrorKind::runtime, "{}: there is no room ({})", directory.string(),
         format_size(room.bytes));
  for (const SpillFileInfo& old : room.to_remove) fs::remove(old.path, error);
  return room.bytes;
}

// A copy wherever there is room for as much as in the roomiest directory; a directory that cannot
// be used is left out, unless it is the last.
void Spill::begin_filling() {
  std::vector<std::pair<fs::path, uint64_t>> rooms;
  std::optional<Error> why;
  for (const fs::path& path : paths_) {
    try {
      rooms.emplace_back(path, make_room(path));
    } catch (const Error& e) {
      why = e;
    }
  }
  if (rooms.empty()) throw *why;
  uint64_t most = 0;
  for (const auto& [path, room] : rooms) most = std::max(most, room);
  layout_ = spill_layout(plan_, most);
  std::lock_guard lock(mutex_);
  for (const auto& [path, room] : rooms) {
    if (room < layout_.file_bytes()) continue;
    try {
      auto fresh = io::NewFile::create(path, layout_.file_bytes(), calls_);
      if (fresh) fresh_.emplace_back(path, std::make_shared<io::NewFile>(std::move(*fresh)));
      if (!fresh && !is_needed_) log::info("another process is filling {}", path.string());
    } catch (const Error& e) {
      why = e;
    }
  }
  if (fresh_.empty() && why) throw *why;
  if (why) log::warning("no copy in the spill cache: {}", why->what());
  is_filled_elsewhere_ = fresh_.empty();
  if (is_filled_elsewhere_) {
    report_.outcome = "being filled by another process";
    return;
  }
  std::memset(index_.data(), 0, index_.bytes().size());
  write_records();
  expect_panels();
  state_ = State::filling;
}

bool Spill::wants(uint32_t tensor) const {
  State now = state();
  if (now == State::verifying) return layout_.find(tensor) != nullptr;
  const bool adds = now == State::filling || (now == State::ready && grows_);
  return adds && layout_.place_of(tensor) != nullptr;
}

Weight Spill::weight(const Move& move, const io::ReadResult& read) const {
  const SpilledTensor& s = *layout_.place_of(move.tensor);
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  auto panel = static_cast<uint64_t>(move.first_row / kPanelRows);
  uint64_t panels = read.bytes.size() / s.panel_bytes[0];
  for (size_t p = 0; p < s.planes; ++p) {
    const std::span<const uint64_t> checksums(at<uint64_t>(s.checksums) + p * s.panels + panel,
                                              panels);
    if (!blocks_are_intact(p == 0 ? read.bytes : read.more[p - 1], s.panel_bytes[p], checksums))
      throw SpillDamaged(tensor.stored->name);
  }
  // The kernels only read what they are given as a weight.
  const auto writable = [](const std::byte* bytes) { return const_cast<std::byte*>(bytes); };
  const ParamPlan& param = plan_.params[tensor.param];
  Weight weight{.format = param.format,
                .rows = static_cast<int64_t>(panels) * kPanelRows,
                .cols = param.param->cols,
                .data = writable(read.bytes.data())};
  if (s.panel_scales > 0) {
    float* scales = at<float>(s.scales) + panel * s.panel_scales;
    (s.planes > 1 ? weight.outers : weight.scales) = scales;
  }
  if (tensor.group != ScaleGroup::none)
    weight.tables = const_cast<float*>(scheme_tables(param.format));
  if (s.planes > 1) weight.group_scales = writable(read.more[0].data());
  if (s.planes > 2) weight.zeros = writable(read.more[1].data());
  if (param.format.ordered) weight.order = const_cast<int32_t*>(tensor.matrix->order.data());
  return weight;
}

EncodeStats Spill::stats(uint32_t tensor) const {
  const SpillRecord& r = *at<SpillRecord>(layout_.place_of(tensor)->record);
  return {r.error_squares, r.value_squares, r.max_error, r.not_finite, r.elements};
}

float Spill::amax(uint32_t tensor) const {
  return at<SpillRecord>(layout_.place_of(tensor)->record)->amax;
}

void Spill::add(const Move& move, const Rows& rows, std::span<std::byte> scratch) {
  const SpilledTensor& s = *layout_.place_of(move.tensor);
  const auto panels = static_cast<uint64_t>(ceil_div(move.rows, kPanelRows));
  const Weight added = rows_from(rows.encoded, rows.first);
  std::vector<uint64_t> checksums(panels * s.planes);
  for (size_t p = 0; p < s.planes; ++p) {
    checksum_blocks({added.plane(kPlanes[p]), panels * s.panel_bytes[p]}, s.panel_bytes[p],
                    std::span(checksums).subspan(p * panels));
  }
  std::vector<FreshCopy> fresh;
  {
    std::lock_guard lock(mutex_);
    if (!take_in(move, rows, checksums)) return;
    fresh = fresh_;
  }
  for (const FreshCopy& copy : fresh) {
    try {
      write(*copy.second, move, added, scratch);
    } catch (const Error& e) {
      std::lock_guard lock(mutex_);
      drop_fresh(copy, e);
    }
  }
  std::lock_guard lock(mutex_);
  if (!wants(move.tensor)) return;
  panels_left_ -= panels;
  left_[static_cast<size_t>(&s - layout_.tensors.data())] -= static_cast<uint32_t>(panels);
  has_more_ = true;
  if (panels_left_ == 0 && !grows_) finish(false);
}

void Spill::write(const io::NewFile& file, const Move& move, const Weight& rows,
                  std::span<std::byte> scratch) {
  const SpilledTensor& s = *layout_.place_of(move.tensor);
  for (size_t p = 0; p < s.planes; ++p) {
    const io::Extent to = s.extent(p, move.first_row, move.rows);
    std::span<const std::byte> plane(rows.plane(kPlanes[p]), to.length);
    if (!scratch.empty()) {
      std::ranges::copy(plane, scratch.begin());
      plane = scratch.first(plane.size());
    }
    file.write(to.offset, plane);
    std::lock_guard lock(mutex_);
    report_.written += to.length;
  }
}

void Spill::drop_fresh(const FreshCopy& copy, const Error& why) {
  if (std::erase(fresh_, copy) == 0) return;
  if (grows_.exchange(false)) fresh_.clear();  // the copies stay as they are, and alike
  if (fresh_.empty() && copies_.empty()) return turn_off(why.what(), false);
  log::warning("no copy in the spill cache: {}", why.what());
}

bool Spill::take_in(const Move& move, const Rows& rows, std::span<const uint64_t> checksums) {
  const SpilledTensor& s = *layout_.place_of(move.tensor);
  auto panel = static_cast<uint64_t>(move.first_row / kPanelRows);
  auto from = static_cast<uint64_t>(rows.first / kPanelRows);
  const uint64_t first = s.checksums / sizeof(uint64_t) + panel;  // in seen_
  const uint64_t panels = checksums.size() / s.planes;
  // A pass may meet a tile again before the file is complete. A damaged checkpoint is refused
  // elsewhere; here its tensor stays incomplete.
  if (!wants(move.tensor) || seen_[first] || rows.stats.not_finite > 0) return false;
  std::fill_n(seen_.begin() + static_cast<std::ptrdiff_t>(first), panels, true);
  std::span<const float> scales;
  if (s.panel_scales > 0) {
    const float* first_scale = s.planes > 1 ? rows.encoded.outers : rows.encoded.scales;
    scales = {first_scale + from * s.panel_scales, panels * s.panel_scales};
  }
  std::span<float> index_scales(at<float>(s.scales) + panel * s.panel_scales, scales.size());
  const auto index_checksums = [&](size_t plane) {
    return std::span(at<uint64_t>(s.checksums) + plane * s.panels + panel, panels);
  };
  if (state() == State::verifying) {
    bool same = std::ranges::equal(std::as_bytes(scales), std::as_bytes(index_scales));
    for (size_t p = 0; p < s.planes; ++p)
      same = same && std::ranges::equal(checksums.subspan(p * panels, panels), index_checksums(p));
    if (same) return true;
    const std::string& name = plan_.tensors[move.tensor].stored->name;
    turn_off(fmt::format("its copy of {} is not what the checkpoint gives", name), true);
    return false;
  }
  for (size_t p = 0; p < s.planes; ++p)
    std::ranges::copy(checksums.subspan(p * panels, panels), index_checksums(p).begin());
  std::ranges::copy(scales, index_scales.begin());
  EncodeStats sum = stats(move.tensor);
  sum.add(rows.stats);
  SpillRecord& record = *at<SpillRecord>(s.record);
  record.error_squares = sum.error_squares;
  record.value_squares = sum.value_squares;
  record.not_finite = sum.not_finite;
  record.elements = sum.elements;
  record.max_error = sum.max_error;
  record.amax = rows.amax;
  return true;
}

void Spill::finish(bool grows) {
  if (state() == State::verifying) {
    report_.outcome = "verified";
  } else {
    checkpoint_.refuse_changes();  // the encoded bytes are not those of the header
    for (const FreshCopy& copy : std::vector(fresh_)) {
      try {
        write_spill_index(*copy.second, header(), index_.bytes().first(layout_.index_bytes));
        copies_.push_back(copy.second->publish(grows));
      } catch (const Error& e) {
        drop_fresh(copy, e);
      }
    }
    if (copies_.empty()) return;  // turned off
    if (!grows) fresh_.clear();
    has_more_ = false;
    report_.bytes = layout_.file_bytes();
    report_.outcome = grows ? "growing" : "written";
  }
  state_.store(State::ready, std::memory_order_release);
}

// Returns whether another process has written the file anew since it was opened here.
bool Spill::is_replaced(const fs::path& path) const {
  const auto ours = std::ranges::find(copies_, path, &io::CheckpointFile::path);
  if (ours == copies_.end()) return false;
  try {
    return io::describe_file(io::open_regular(path), path, ours->name).inode != ours->inode;
  } catch (const Error&) {  // it is gone
    return false;
  }
}

void Spill::turn_off(const std::string& reason, bool damaged) {
  if (state() == State::off && !report_.outcome.empty()) return;
  log::warning("weights are read from the checkpoint, not from the spill cache{}: {}",
               is_needed_ ? ", which is written again" : "", reason);
  report_.outcome = reason;
  state_.store(State::off, std::memory_order_release);
  fresh_.clear();  // each ends with the last write to it
  grows_ = false;
  for (const fs::path& path : paths_)
    if (damaged && !is_replaced(path)) remove_file(path);
  copies_.clear();
}

void Spill::stop_using(const std::string& reason, bool damaged) {
  std::lock_guard lock(mutex_);
  turn_off(reason, damaged);
}

void Spill::stop_using_copy(const fs::path& copy, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (std::erase_if(copies_, [&](const io::CheckpointFile& c) { return c.path == copy; }) == 0)
    return;  // another reader met it before
  if (copies_.empty()) return turn_off(reason, false);
  log::warning("{}; another copy of the spill is read instead", reason);
}

std::vector<io::CheckpointFile> Spill::files() const {
  std::lock_guard lock(mutex_);
  return ready() ? copies_ : std::vector<io::CheckpointFile>();
}

Spill::Report Spill::report() const {
  std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace sluice
