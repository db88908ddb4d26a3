#include "src/load/row_copies.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cstring>

#include "quant/grouped_rows.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/load/column_reader.h"
#include "src/load/grouped_copies.h"
#include "src/load/spill_directory.h"
#include "src/load/spill_header.h"
#include "src/plan/bind.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kAlignment = 4096;

// [rows, cols] elements of `from` as [cols, rows], in squares that stay in the cache.
template <class Element>
void transpose(const std::byte* from, int64_t rows, int64_t cols, std::byte* to) {
  constexpr int64_t kSquare = 32;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Element));
  for (int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    for (int64_t c0 = 0; c0 < cols; c0 += kSquare) {
      const int64_t r1 = std::min(r0 + kSquare, rows), c1 = std::min(c0 + kSquare, cols);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r)
          std::memcpy(to + (c * rows + r) * kBytes, from + (r * cols + c) * kBytes, kBytes);
      }
    }
  }
}

// Returns the matrix of a piece that is stored input-major; null for others.
std::shared_ptr<const StoredMatrix> input_major(const Piece& piece, StoredFormats& formats) {
  const StoredFormats::Found found = formats.find(piece);
  if (found.codes == nullptr || found.codes->bytes == 0) return nullptr;
  const int64_t outputs = found.format->outputs_across(*found.codes);
  if (outputs == 0) return nullptr;
  std::vector<std::string> faults;
  return formats.describe(found, {piece, outputs, found.codes->shape, ""}, faults);
}

}  // namespace

RowCopies::RowCopies(const io::CheckpointIndex& index, const Model& model,
                     const fs::path& checkpoint, const SpillOptions& spill)
    : index_(index),
      model_(model),
      checkpoint_(checkpoint.string()),
      limit_(spill.limit),
      verify_(spill.verify) {
  find_copies();
  if (copies_.empty()) return;
  std::string model_name = io::printable(checkpoint.filename().string()).substr(0, 64);
  path_ = spill.directories.front() /
          fmt::format("{}-rows-{}.spill", model_name,
                      checksum128(std::as_bytes(std::span(checkpoint_))).substr(0, 16));
  io::CheckpointFile planned;
  planned.name = path_.filename().string();
  planned.path = path_;
  planned.size = copies_end() + index_bytes();
  plan_file(std::move(planned));
}

void RowCopies::find_copies() {
  file_bytes_ = kSpillHeaderBytes;
  StoredFormats formats(model_.files.config, index_);
  model_.root->each_param([&](const Param& param) {
    for (const Piece& piece : param.pieces) {
      if (lies_transposed(piece, index_)) add_transposed(piece);
      if (formats.are_input_major()) add_grouped(piece, formats);
    }
  });
}

// Skips tensors with faults, here and below: bind_tensors() names them.
void RowCopies::add_transposed(const Piece& piece) {
  const io::StoredTensor* stored = index_.find(piece.source);
  if (stored == nullptr || stored->shape.size() < 2 || stored->bytes == 0) return;
  if (!is_float_weight(stored->dtype)) return;
  const int last = stored->shape.size() - 1;
  Copy copy{.of = stored,
            .inputs = stored->shape[last - 1],
            .outputs = stored->shape[last],
            .bytes = stored->bytes};
  copy.matrices = *stored->shape.elements() / (copy.inputs * copy.outputs);
  add(copy);
}

void RowCopies::add_grouped(const Piece& piece, StoredFormats& formats) {
  const io::StoredTensor* codes = formats.find(piece).codes;
  if (codes == nullptr || seen_.contains(codes->name)) return;
  const auto matrix = input_major(piece, formats);
  if (matrix == nullptr) return;
  Copy copy{.of = codes, .inputs = piece.cols, .outputs = matrix->outputs, .grouped = &piece};
  copy.bytes =
      static_cast<uint64_t>(grouped_row_layout(*matrix->kept, piece.cols).bytes * copy.outputs);
  add(copy);
}

// Unless another piece has named its tensor.
void RowCopies::add(Copy copy) {
  if (!seen_.insert(copy.of->name).second) return;
  copy.offset = round_up(file_bytes_, kAlignment);
  file_bytes_ = copy.offset + copy.bytes;
  copies_.push_back(copy);
}

std::string RowCopies::fingerprint() const {
  std::string text = fmt::format("{}\nchecksums of {} bytes\n{}", checkpoint_,
                                 SummedOutput::kPageBytes, index_.identity());
  for (const Copy& c : copies_)
    text += fmt::format("{} {} {} {} {}\n", c.of->name, c.of->file, c.of->offset, c.of->bytes,
                        c.offset);
  return checksum128(std::as_bytes(std::span(text)));
}

uint64_t RowCopies::copies_end() const { return round_up(file_bytes_, kAlignment); }

std::span<uint64_t> RowCopies::checksums() const {
  return {reinterpret_cast<uint64_t*>(index_memory_.data()), index_bytes() / sizeof(uint64_t)};
}

// The file of an earlier run, or of another process, with its index in memory.
std::optional<io::CheckpointFile> RowCopies::existing() const {
  const std::optional<SpillHeader> header = read_spill_header(path_);
  if (!header || header->fingerprint != fingerprint()) return std::nullopt;
  if (header->index_offset != copies_end() || header->index_bytes != index_bytes())
    return std::nullopt;
  try {
    const io::Fd fd = io::open_regular(path_);
    io::CheckpointFile file = io::describe_file(fd, path_, path_.filename().string());
    if (file.size != copies_end() + index_bytes() ||
        read_spill_index(fd, path_, *header, index_memory_.bytes()) != header->index_checksum)
      return std::nullopt;
    file.ctime_ns.reset();  // every use sets its access time
    mark_spill_used(path_);
    return file;
  } catch (const Error& e) {  // as if there were none
    log::info("{}", e.what());
    return std::nullopt;
  }
}

// The files to read, wherever that of the copies comes from, and the tensors in it.
void RowCopies::plan_file(io::CheckpointFile file) {
  std::vector<io::CheckpointFile> files = index_.files();
  files.push_back(std::move(file));
  files_.emplace(std::move(files), std::vector<io::StoredTensor>(), std::vector<std::string>());
  for (const io::FileCopy& copy : index_.copies()) files_->add_copy(copy);
  for (const Copy& copy : copies_) {
    io::StoredTensor t = *copy.of;
    t.shape = {};
    for (int d = 0; d + 2 < copy.of->shape.size(); ++d) t.shape.push_back(copy.of->shape[d]);
    t.shape.push_back(copy.outputs);
    t.shape.push_back(copy.grouped != nullptr ? static_cast<int64_t>(copy.bytes) / copy.outputs
                                              : copy.inputs);
    if (copy.grouped != nullptr) t.dtype = DType::grouped_row;
    t.file = this->file();
    t.offset = copy.offset;
    t.bytes = copy.bytes;
    tensors_.emplace(copy.of->name, std::move(t));
  }
}

void RowCopies::make_room() const {
  const fs::path directory = path_.parent_path();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_errno(error.value(), "{}: cannot be created", directory.string());
  const uint64_t bytes = copies_end() + index_bytes();
  SpillRoom room = spill_room(path_, bytes, spill_limit(directory, limit_));
  if (room.bytes < bytes)
    fail(ErrorKind::no_fit,
         "{}: weights that are stored with their dimensions exchanged need a copy of {} to be "
         "streamed from, and there is room for {}: give more memory, or another --spill-dir",
         directory.string(), format_size(bytes), format_size(room.bytes));
  for (const SpillFileInfo& old : room.to_remove) fs::remove(old.path, error);
}

void RowCopies::write(Ledger& ledger, std::span<std::byte> memory, const std::stop_token& stop) {
  stop_ = stop;
  if (index_memory_.bytes().empty())
    index_memory_ = Buffer(ledger, Use::staging, "spill index", index_bytes(), Buffer::Touch::now);
  std::optional<io::CheckpointFile> file = existing();
  if (file && std::exchange(verify_, false) && !is_what_the_checkpoint_gives(memory)) {
    log::warning("{}: is not what the checkpoint gives; it is made again", path_.string());
    file.reset();
  }
  if (!file) return make(memory);
  files_->replace_file(this->file(), *std::move(file));
  keep();
}

void RowCopies::make(std::span<std::byte> memory) {
  make_room();
  std::optional<io::NewFile> fresh = io::NewFile::create(path_, copies_end() + index_bytes());
  if (!fresh)
    fail(ErrorKind::runtime, "{}: another process is writing it; try again when it is done",
         path_.string());
  log::info("writing {} of weights by rows to {}", format_size(file_bytes_), path_.string());
  SummedOutput output(*fresh, kSpillHeaderBytes, checksums());
  turn_all(output, memory);
  output.finish(copies_end());
  index_.refuse_changes();  // the copied bytes are not those of the header
  SpillHeader header;
  header.model = checkpoint_;
  header.scheme = "rows";
  header.fingerprint = fingerprint();
  header.tensors = copies_.size();
  header.index_offset = copies_end();
  files_->replace_file(
      file(), finish_spill_file(*fresh, header, index_memory_.bytes().first(index_bytes())));
  keep();
}

bool RowCopies::is_what_the_checkpoint_gives(std::span<std::byte> memory) const {
  SummedOutput output(kSpillHeaderBytes, checksums());
  turn_all(output, memory);
  return output.finish(copies_end());
}

RowCopies::Pages RowCopies::pages_of(uint64_t offset, uint64_t length) {
  const uint64_t begin = round_down(offset, SummedOutput::kPageBytes);
  return {begin, round_up(offset + length, SummedOutput::kPageBytes) - begin};
}

void RowCopies::check(uint64_t offset, std::span<const std::byte> pages) const {
  const uint64_t first = (offset - kSpillHeaderBytes) / SummedOutput::kPageBytes;
  if (blocks_are_intact(pages, SummedOutput::kPageBytes, checksums().subspan(first))) return;
  const auto next = std::ranges::upper_bound(copies_, offset, {}, &Copy::offset);
  throw CopyDamaged(path_, (next - 1)->of->name);
}

// A disk or a memory that damages every file that it gets is no longer given any.
void RowCopies::make_again(const std::string& why, std::span<std::byte> memory) {
  constexpr int kMost = 3;
  const io::CheckpointFile& old = files_->files()[file()];
  lock_ = {};
  std::optional<io::CheckpointFile> now = existing();
  if (!now || (now->inode == old.inode && now->mtime_ns == old.mtime_ns)) {
    std::error_code error;
    fs::remove(path_, error);
    now.reset();
  }
  if (++made_again_ > kMost)
    fail(ErrorKind::runtime, "{}, for the {}th time; it has been removed", why, made_again_);
  log::warning("{}; it is made again", why);
  try {
    if (!now) return make(memory);
    files_->replace_file(file(), *std::move(now));
    keep();
  } catch (const Error& e) {
    fail(ErrorKind::runtime, "{}; it could not be made again: {}", why, e.what());
  }
}

void RowCopies::keep() {
  lock_ = io::open_regular(path_);
  flock(lock_.get(), LOCK_SH | LOCK_NB);
}

void RowCopies::turn_all(SummedOutput& to, std::span<std::byte> memory) const {
  for (const Copy& copy : copies_) {
    if (copy.grouped != nullptr) {
      copy_grouped(copy, to, memory);
      continue;
    }
    for (int64_t m = 0; m < copy.matrices; ++m) copy_transposed(copy, m, to, memory);
  }
}

// One at a time, because the order of a matrix's inputs is no part of `memory`.
void RowCopies::copy_grouped(const Copy& copy, SummedOutput& to,
                             std::span<std::byte> memory) const {
  StoredFormats formats(model_.files.config, index_);
  const auto matrix = input_major(*copy.grouped, formats);
  sluice::check(matrix != nullptr, "tensors that fitted when the copies were planned");
  formats.finish();
  copy_by_rows(index_, *matrix, copy.inputs, to, copy.offset, memory, stop_);
}

// Transposes as many outputs at a time as a half of `memory` holds with all their inputs.
void RowCopies::copy_transposed(const Copy& copy, int64_t matrix, SummedOutput& to,
                                std::span<std::byte> memory) const {
  const int64_t element = dtype_bytes(copy.of->dtype);
  const auto half = static_cast<int64_t>(round_down(memory.size() / 2, kAlignment));
  const int64_t most = half / (copy.inputs * element);
  if (most == 0)
    fail(ErrorKind::no_fit, "{}: {} inputs are too many to be turned over in {}", copy.of->name,
         copy.inputs, format_size(memory.size()));
  const auto first = static_cast<uint64_t>(matrix * copy.inputs * copy.outputs * element);
  const ColumnReader reader(index_, *copy.of, first, copy.inputs,
                            static_cast<uint64_t>(copy.outputs * element));
  std::byte *window = memory.data(), *transposed = memory.data() + half;
  for (int64_t output = 0; output < copy.outputs; output += most) {
    if (stop_.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    const int64_t outputs = std::min(most, copy.outputs - output);
    reader.read(static_cast<uint64_t>(output * element), static_cast<uint64_t>(outputs * element),
                window);
    if (element == 8) transpose<uint64_t>(window, copy.inputs, outputs, transposed);
    if (element == 4) transpose<uint32_t>(window, copy.inputs, outputs, transposed);
    if (element == 2) transpose<uint16_t>(window, copy.inputs, outputs, transposed);
    to.write(copy.offset + first + static_cast<uint64_t>(output * copy.inputs * element),
             {transposed, static_cast<size_t>(outputs * copy.inputs * element)});
  }
}

}  // namespace sluice
