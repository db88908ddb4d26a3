#include "src/load/spill.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/load/spill_directory.h"
#include "src/load/spill_header.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// One file for each checkpoint directory, scheme, choice of tensors and rank: what a changed
// checkpoint left behind is replaced.
std::string file_name(const SpillKey& key, const ReadPlan& plan, const SpillLayout& layout) {
  TextChecksum identity;
  identity.add(
      fmt::format("{}\n{}\n{}/{}\n", key.model.string(), key.scheme, key.rank.rank, key.rank.size));
  for (const SpilledTensor& s : layout.tensors) {
    identity.add(plan.tensors[s.tensor].stored->name);
    identity.add("\n");
  }
  std::string model = io::printable(key.model.filename().string()).substr(0, 64);
  std::string scheme = key.scheme.find('=') == std::string::npos ? key.scheme : "rules";
  return fmt::format("{}-{}-{}.spill", model, scheme, identity.digits().substr(0, 16));
}

}  // namespace

Spill::Spill(const ReadPlan& plan, const io::CheckpointIndex& index, const SpillKey& key,
             const SpillOptions& options, Ledger& ledger, const io::SystemCalls& calls)
    : plan_(plan), checkpoint_(index), options_(options), key_(key) {
  layout_ = spill_layout(plan);
  if (options.directories.empty() || layout_.tensors.empty()) {
    layout_ = {{}, std::vector<int32_t>(plan.tensors.size(), -1)};
    return;
  }
  const uint64_t everything = layout_.file_bytes();
  uint64_t room = 0;
  for (const fs::path& directory : options.directories) {
    paths_.push_back(directory / file_name(key, plan, layout_));
    uint64_t limit = spill_limit(directory, options.limit, calls);
    room = std::max(room, spill_room(paths_.back(), everything, limit, calls).bytes);
  }
  report_.paths = paths_;
  index_ = Buffer(ledger, Use::staging, "spill index", layout_.index_bytes, Buffer::Touch::now);
  lists_ = ledger.lease(Place::host, Use::staging, "spill index", layout_.list_bytes());
  layout_ = spill_layout(plan, room);
  try {
    fingerprint_ = fingerprint(layout_);
    if (open_existing(calls)) return;
    begin_filling(calls);
  } catch (const Error& e) {
    std::lock_guard lock(mutex_);
    turn_off(e.what(), false);
  }
}

std::string Spill::fingerprint(const SpillLayout& layout) const {
  TextChecksum text;
  text.add(fmt::format("{} {}/{}\n", key_.scheme, key_.rank.rank, key_.rank.size));
  text.add(checkpoint_.identity());
  for (const SpilledTensor& s : layout.tensors) {
    const TensorPlan& t = plan_.tensors[s.tensor];
    const Cut& cut = plan_.params[t.param].param->pieces[t.piece].cut;
    text.add(fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", t.stored->name,
                         dtype_name(t.stored->dtype), t.stored->file, t.stored->offset, cut.row,
                         cut.rows, cut.col, cut.cols, s.panel_bytes, s.panel_scales, s.codes));
    const View& view = plan_.params[t.param].param->pieces[t.piece].view;
    text.add(
        fmt::format("{} {} {} {}\n", view.index.value_or(-1), view.first, view.group, view.stride));
  }
  return text.digits();
}

bool Spill::open_existing(const io::SystemCalls& calls) {
  for (const fs::path& path : paths_) {
    try {
      if (open_copy(path, calls)) mark_spill_used(path);
    } catch (const Error& e) {  // as if there were none
      log::info("{}", e.what());
    }
  }
  if (copies_.empty()) return false;
  report_.bytes = layout_.file_bytes();
  report_.outcome = "reused";
  expect_panels();
  state_ = options_.verify ? State::verifying : State::ready;
  return true;
}

// The tensors that an index holds, in its order. It may be anybody's: at worst they are not ours.
SpillLayout Spill::layout_in_index(uint64_t tensors) const {
  std::vector<uint32_t> found;
  for (uint64_t i = 0; i < tensors; ++i) {
    uint32_t tensor = at<Record>(i * kSpillRecordBytes)->tensor;
    if (tensor < plan_.tensors.size() && (found.empty() || tensor > found.back()))
      found.push_back(tensor);
  }
  return spill_layout(plan_, found);
}

// Opens a copy if it is usable. A run with another budget may have chosen other tensors if there
// was no room for all: its file is used if it saves the sweep about as much as our choice would.
bool Spill::open_copy(const fs::path& path, const io::SystemCalls& calls) {
  constexpr double kAboutAsMuch = 1.05;
  std::optional<SpillHeader> header = read_spill_header(path);
  if (!header || header->index_bytes > index_.bytes().size() ||
      header->tensors > header->index_bytes / kSpillRecordBytes) {
    return false;
  }
  io::Fd fd = io::open_regular(path);
  io::CheckpointFile file = io::describe_file(fd, path, path.filename().string());
  SpillLayout theirs = layout_;
  std::string index_checksum = index_checksum_;
  if (copies_.empty()) {
    index_checksum = read_spill_index(fd, path, *header, index_.bytes());
    theirs = layout_in_index(header->tensors);
  }
  // Copies with one index hold the same codes: it has their checksums.
  bool intact = header->index_checksum == index_checksum &&
                header->index_offset == theirs.codes_end &&
                header->index_bytes == theirs.index_bytes && file.size == theirs.file_bytes();
  auto sweep = static_cast<double>(sweep_bytes(plan_, layout_));
  bool helps = static_cast<double>(sweep_bytes(plan_, theirs)) <= kAboutAsMuch * sweep;
  if (!intact || !helps || header->fingerprint != fingerprint(theirs) ||
      theirs.file_bytes() > spill_limit(path.parent_path(), options_.limit, calls)) {
    return false;
  }
  layout_ = std::move(theirs);
  fingerprint_ = header->fingerprint;
  index_checksum_ = index_checksum;
  file.ctime_ns.reset();  // every use sets its access time
  copies_.push_back(file);
  return true;
}

void Spill::expect_panels() {
  seen_.assign(layout_.index_bytes / sizeof(uint64_t), false);
  panels_left_ = 0;
  for (const SpilledTensor& s : layout_.tensors) panels_left_ += s.panels;
}

// Bytes that a copy may have.
uint64_t Spill::make_room(const fs::path& path, const io::SystemCalls& calls) const {
  const fs::path directory = path.parent_path();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_errno(error.value(), "{}: cannot be created", directory.string());
  uint64_t limit = spill_limit(directory, options_.limit, calls);
  SpillRoom room = spill_room(path, spill_layout(plan_).file_bytes(), limit, calls);
  if (spill_layout(plan_, room.bytes).tensors.empty())
    fail(ErrorKind::runtime, "{}: there is no room ({})", directory.string(),
         format_size(room.bytes));
  for (const SpillFileInfo& old : room.to_remove) fs::remove(old.path, error);
  return room.bytes;
}

// A copy wherever there is room for as much as in the roomiest directory; a directory that cannot
// be used is left out, unless it is the last.
void Spill::begin_filling(const io::SystemCalls& calls) {
  std::vector<std::pair<fs::path, uint64_t>> rooms;
  std::optional<Error> why;
  for (const fs::path& path : paths_) {
    try {
      rooms.emplace_back(path, make_room(path, calls));
    } catch (const Error& e) {
      why = e;
    }
  }
  if (rooms.empty()) throw *why;
  uint64_t most = 0;
  for (const auto& [path, room] : rooms) most = std::max(most, room);
  if (most < layout_.file_bytes()) {
    layout_ = spill_layout(plan_, most);
    fingerprint_ = fingerprint(layout_);
  }
  std::lock_guard lock(mutex_);
  for (const auto& [path, room] : rooms) {
    if (room < layout_.file_bytes()) continue;
    try {
      auto fresh = io::NewFile::create(path, layout_.file_bytes(), calls);
      if (fresh) fresh_.emplace_back(path, std::make_shared<io::NewFile>(std::move(*fresh)));
      if (!fresh) log::info("another process is filling {}", path.string());
    } catch (const Error& e) {
      why = e;
    }
  }
  if (fresh_.empty() && why) throw *why;
  if (why) log::warning("no copy in the spill cache: {}", why->what());
  if (fresh_.empty()) {
    report_.outcome = "being filled by another process";
    return;
  }
  std::memset(index_.data(), 0, index_.bytes().size());
  expect_panels();
  state_ = State::filling;
}

bool Spill::wants(uint32_t tensor) const {
  State now = state();
  return (now == State::filling || now == State::verifying) && layout_.find(tensor) != nullptr;
}

Weight Spill::weight(const Move& move, std::span<const std::byte> codes) const {
  const SpilledTensor& s = *layout_.find(move.tensor);
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  auto panel = static_cast<uint64_t>(move.first_row / kPanelRows);
  uint64_t panels = codes.size() / s.panel_bytes;
  const std::span<const uint64_t> checksums(at<uint64_t>(s.checksums) + panel, panels);
  if (!blocks_are_intact(codes, s.panel_bytes, checksums)) throw SpillDamaged(tensor.stored->name);
  const ParamPlan& param = plan_.params[tensor.param];
  // The kernels only read what they are given as a weight.
  return Weight{param.format, static_cast<int64_t>(panels) * kPanelRows, param.param->cols,
                const_cast<std::byte*>(codes.data()), at<float>(s.scales) + panel * s.panel_scales};
}

EncodeStats Spill::stats(uint32_t tensor) const {
  const Record& r = *at<Record>(layout_.find(tensor)->record);
  return {r.error_squares, r.value_squares, r.max_error, r.not_finite, r.elements};
}

float Spill::amax(uint32_t tensor) const { return at<Record>(layout_.find(tensor)->record)->amax; }

void Spill::add(const Move& move, const Rows& rows, std::span<std::byte> scratch) {
  const SpilledTensor& s = *layout_.find(move.tensor);
  auto panels = static_cast<uint64_t>(ceil_div(move.rows, kPanelRows));
  auto from = static_cast<uint64_t>(rows.first / kPanelRows);
  std::span<const std::byte> codes(rows.encoded.data + from * s.panel_bytes,
                                   panels * s.panel_bytes);
  std::vector<uint64_t> checksums(panels);
  checksum_blocks(codes, s.panel_bytes, checksums);

  std::vector<FreshCopy> fresh;
  {
    std::lock_guard lock(mutex_);
    if (!take_in(move, rows, checksums)) return;
    fresh = fresh_;
  }
  if (!fresh.empty()) std::ranges::copy(codes, scratch.begin());
  for (const FreshCopy& copy : fresh) {
    try {
      copy.second->write(s.codes_of(move.first_row), scratch.first(codes.size()));
      std::lock_guard lock(mutex_);
      report_.written += codes.size();
    } catch (const Error& e) {
      std::lock_guard lock(mutex_);
      drop_fresh(copy, e);
    }
  }
  std::lock_guard lock(mutex_);
  panels_left_ -= panels;
  if (panels_left_ == 0 && wants(move.tensor)) finish();
}

void Spill::drop_fresh(const FreshCopy& copy, const Error& why) {
  if (std::erase(fresh_, copy) == 0) return;
  if (fresh_.empty() && copies_.empty()) return turn_off(why.what(), false);
  log::warning("no copy in the spill cache: {}", why.what());
}

bool Spill::take_in(const Move& move, const Rows& rows, std::span<const uint64_t> checksums) {
  const SpilledTensor& s = *layout_.find(move.tensor);
  auto panel = static_cast<uint64_t>(move.first_row / kPanelRows);
  auto from = static_cast<uint64_t>(rows.first / kPanelRows);
  const uint64_t first = s.checksums / sizeof(uint64_t) + panel;  // in seen_
  // A pass may meet a tile again before the file is complete. A damaged checkpoint is refused
  // elsewhere; here its tensor stays incomplete.
  if (!wants(move.tensor) || seen_[first] || rows.stats.not_finite > 0) return false;
  std::fill_n(seen_.begin() + static_cast<std::ptrdiff_t>(first), checksums.size(), true);
  std::span<const float> scales(rows.encoded.scales + from * s.panel_scales,
                                checksums.size() * s.panel_scales);
  std::span<float> index_scales(at<float>(s.scales) + panel * s.panel_scales, scales.size());
  std::span<uint64_t> index_checksums(at<uint64_t>(s.checksums) + panel, checksums.size());
  if (state() == State::verifying) {
    if (std::ranges::equal(checksums, index_checksums) &&
        std::memcmp(scales.data(), index_scales.data(), scales.size_bytes()) == 0) {
      return true;
    }
    const std::string& name = plan_.tensors[move.tensor].stored->name;
    turn_off(fmt::format("its copy of {} is not what the checkpoint gives", name), true);
    return false;
  }
  std::ranges::copy(checksums, index_checksums.begin());
  std::ranges::copy(scales, index_scales.begin());
  EncodeStats sum = stats(move.tensor);
  sum.add(rows.stats);
  *at<Record>(s.record) = {sum.error_squares, sum.value_squares, sum.not_finite, sum.elements,
                           sum.max_error,     rows.amax,         move.tensor};
  return true;
}

void Spill::finish() {
  if (state() == State::verifying) {
    report_.outcome = "verified";
  } else {
    SpillHeader header;
    header.model = key_.model.string();
    header.scheme = key_.scheme;
    header.fingerprint = fingerprint_;
    header.tensors = layout_.tensors.size();
    header.index_offset = layout_.codes_end;
    checkpoint_.refuse_changes();  // the encoded bytes are not those of the header
    for (const FreshCopy& copy : std::vector(fresh_)) {
      try {
        copies_.push_back(
            finish_spill_file(*copy.second, header, index_.bytes().first(layout_.index_bytes)));
      } catch (const Error& e) {
        drop_fresh(copy, e);
      }
    }
    if (copies_.empty()) return;  // turned off
    fresh_.clear();
    report_.bytes = layout_.file_bytes();
    report_.outcome = "written";
  }
  state_.store(State::ready, std::memory_order_release);
}

void Spill::turn_off(const std::string& reason, bool damaged) {
  if (state() == State::off && !report_.outcome.empty()) return;
  log::warning("weights are read from the checkpoint, not from the spill cache: {}", reason);
  report_.outcome = reason;
  state_.store(State::off, std::memory_order_release);
  fresh_.clear();  // each ends with the last write to it
  copies_.clear();
  std::error_code error;
  for (const fs::path& path : paths_)
    if (damaged) fs::remove(path, error);
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
