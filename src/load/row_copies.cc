#include "src/load/row_copies.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "quant/grouped_rows.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/load/column_reader.h"
#include "src/load/gptq_copies.h"
#include "src/load/spill_directory.h"
#include "src/load/spill_header.h"

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

}  // namespace

RowCopies::RowCopies(const io::CheckpointIndex& index, Model& model, const fs::path& checkpoint,
                     const SpillOptions& spill)
    : index_(index), model_(model), checkpoint_(checkpoint.string()), limit_(spill.limit) {
  find_copies();
  if (copies_.empty()) return;
  std::string model_name = io::printable(checkpoint.filename().string()).substr(0, 64);
  path_ = spill.directories.front() /
          fmt::format("{}-rows-{}.spill", model_name, fingerprint().substr(0, 16));
  io::CheckpointFile planned;
  planned.name = path_.filename().string();
  planned.path = path_;
  planned.size = file_bytes_;
  set_file(existing().value_or(planned));
}

void RowCopies::find_copies() {
  file_bytes_ = kSpillHeaderBytes;
  gptq_ = gptq_config(model_.files.config);
  GptqBinder binder(gptq_.value_or(GptqConfig{}), index_);
  model_.root->each_param([&](Param& param) {
    for (Piece& piece : param.pieces) {
      if (piece.view.transposed) add_transposed(piece);
      if (gptq_ && binder.find(piece) != nullptr) add_gptq(piece, binder);
    }
  });
}

// What is not as it should be, here and below, bind_tensors() names.
void RowCopies::add_transposed(Piece& piece) {
  const io::StoredTensor* stored = index_.find(piece.source);
  if (stored == nullptr || stored->shape.size() < 2 || stored->bytes == 0) return;
  if (!is_float_weight(stored->dtype)) return;
  pieces_.push_back(&piece);
  const int last = stored->shape.size() - 1;
  Copy copy{.of = stored,
            .inputs = stored->shape[last - 1],
            .outputs = stored->shape[last],
            .bytes = stored->bytes};
  copy.matrices = *stored->shape.elements() / (copy.inputs * copy.outputs);
  add(copy);
}

void RowCopies::add_gptq(const Piece& piece, GptqBinder& binder) {
  TensorPlan codes;
  std::vector<std::string> faults;
  binder.add(codes, piece, faults);
  if (!faults.empty() || codes.stored->bytes == 0) return;
  Copy copy{.of = codes.stored, .inputs = piece.cols, .outputs = piece.rows, .gptq = &piece};
  copy.bytes =
      static_cast<uint64_t>(grouped_row_layout(codes.gptq->format, piece.cols).bytes * piece.rows);
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
  std::string text = fmt::format("{}\n{}", checkpoint_, index_.identity());
  for (const Copy& c : copies_)
    text += fmt::format("{} {} {} {} {}\n", c.of->name, c.of->file, c.of->offset, c.of->bytes,
                        c.offset);
  return checksum128(std::as_bytes(std::span(text)));
}

std::optional<io::CheckpointFile> RowCopies::existing() const {
  std::optional<SpillHeader> header = read_spill_header(path_);
  if (!header || header->fingerprint != fingerprint()) return std::nullopt;
  io::CheckpointFile file =
      io::describe_file(io::open_regular(path_), path_, path_.filename().string());
  if (file.size < file_bytes_) return std::nullopt;
  file.ctime_ns.reset();
  mark_spill_used(path_);
  return file;
}

// The index, once it is known what the file is like.
void RowCopies::set_file(io::CheckpointFile file) {
  std::vector<io::CheckpointFile> files = index_.files();
  std::vector<io::StoredTensor> tensors = index_.tensors();
  const auto number = static_cast<uint32_t>(files.size());
  files.push_back(std::move(file));
  std::unordered_map<std::string_view, const Copy*> by_name;
  for (const Copy& c : copies_) by_name.emplace(c.of->name, &c);
  for (io::StoredTensor& t : tensors) {
    auto found = by_name.find(t.name);
    if (found == by_name.end()) continue;
    const Copy& copy = *found->second;
    Shape shape;
    for (int i = 0; i + 2 < t.shape.size(); ++i) shape.push_back(t.shape[i]);
    shape.push_back(copy.outputs);
    shape.push_back(copy.inputs);
    if (copy.gptq != nullptr) {
      shape = {copy.outputs, static_cast<int64_t>(copy.bytes) / copy.outputs};
      t.dtype = DType::grouped_row;
    }
    t.shape = shape;
    t.file = number;
    t.offset = copy.offset;
    t.bytes = copy.bytes;
  }
  turned_.emplace(std::move(files), std::move(tensors), index_.warnings());
  for (const io::FileCopy& copy : index_.copies()) turned_->add_copy(copy);
}

void RowCopies::use(bool copies) {
  in_use_ = copies && !empty();
  for (Piece* piece : pieces_) piece->view.transposed = !in_use_;
}

void RowCopies::make_room() const {
  const fs::path directory = path_.parent_path();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_errno(error.value(), "{}: cannot be created", directory.string());
  SpillRoom room = spill_room(path_, file_bytes_, spill_limit(directory, limit_));
  if (room.bytes < file_bytes_)
    fail(ErrorKind::no_fit,
         "{}: weights that are stored with their dimensions exchanged need a copy of {} to be "
         "streamed from, and there is room for {}: give more memory, or another --spill-dir",
         directory.string(), format_size(file_bytes_), format_size(room.bytes));
  for (const SpillFileInfo& old : room.to_remove) fs::remove(old.path, error);
}

bool RowCopies::write(std::span<std::byte> memory, const std::stop_token& stop) {
  if (auto file = existing()) {  // since another has made it, it may be another
    keep();
    if (turned_->files().back().mtime_ns == file->mtime_ns) return false;
    set_file(*std::move(file));
    return true;
  }
  make_room();
  std::optional<io::NewFile> fresh = io::NewFile::create(path_, file_bytes_);
  if (!fresh)
    fail(ErrorKind::runtime, "{}: another process is writing it; try again when it is done",
         path_.string());
  log::info("writing {} of weights by rows to {}", format_size(file_bytes_), path_.string());
  turn_all(*fresh, memory, stop);
  index_.refuse_changes();  // what was copied is not what the header says it is
  const std::string text = spill_header_text({.model = checkpoint_,
                                              .scheme = "rows",
                                              .fingerprint = fingerprint(),
                                              .tensors = copies_.size(),
                                              .index_checksum = ""});
  fresh->write(0, std::as_bytes(std::span(text)));
  set_file(fresh->publish());
  keep();
  return true;
}

void RowCopies::keep() {
  lock_ = io::open_regular(path_);
  flock(lock_.get(), LOCK_SH | LOCK_NB);
}

void RowCopies::turn_all(const io::NewFile& to, std::span<std::byte> memory,
                         const std::stop_token& stop) const {
  GptqBinder binder(gptq_.value_or(GptqConfig{}), index_);
  std::vector<TensorPlan> codes(copies_.size());
  std::vector<std::string> faults;
  for (size_t i = 0; i < copies_.size(); ++i)
    if (copies_[i].gptq != nullptr) binder.add(codes[i], *copies_[i].gptq, faults);
  binder.finish();
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Copy& copy = copies_[i];
    if (copy.gptq != nullptr) {
      copy_gptq_by_rows(index_, codes[i], to, copy.offset, memory, stop);
      continue;
    }
    for (int64_t m = 0; m < copy.matrices; ++m) turn(copy, m, to, memory, stop);
  }
}

// So many outputs at a time as two parts of `memory` hold with all their inputs.
void RowCopies::turn(const Copy& copy, int64_t matrix, const io::NewFile& to,
                     std::span<std::byte> memory, const std::stop_token& stop) const {
  const int64_t element = dtype_bytes(copy.of->dtype);
  const auto half = static_cast<int64_t>(round_down(memory.size() / 2, kAlignment));
  const int64_t most = half / (copy.inputs * element);
  if (most == 0)
    fail(ErrorKind::no_fit, "{}: {} inputs are too many to be turned over in {}", copy.of->name,
         copy.inputs, format_size(memory.size()));
  const auto first = static_cast<uint64_t>(matrix * copy.inputs * copy.outputs * element);
  const ColumnReader reader(index_, *copy.of, first, copy.inputs,
                            static_cast<uint64_t>(copy.outputs * element));
  std::byte *window = memory.data(), *turned = memory.data() + half;
  for (int64_t output = 0; output < copy.outputs; output += most) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    const int64_t outputs = std::min(most, copy.outputs - output);
    reader.read(static_cast<uint64_t>(output * element), static_cast<uint64_t>(outputs * element),
                window);
    if (element == 8) transpose<uint64_t>(window, copy.inputs, outputs, turned);
    if (element == 4) transpose<uint32_t>(window, copy.inputs, outputs, turned);
    if (element == 2) transpose<uint16_t>(window, copy.inputs, outputs, turned);
    to.write(copy.offset + first + static_cast<uint64_t>(output * copy.inputs * element),
             {turned, static_cast<size_t>(outputs * copy.inputs * element)});
  }
}

}  // namespace sluice
