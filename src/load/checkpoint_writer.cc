#include "src/load/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "io/block_output.h"
#include "io/lanes_output.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/units.h"
#include "src/load/output_file.h"
#include "src/plan/lay_out.h"
#include "src/plan/spill_window.h"

namespace sluice {
namespace {

// Parts of the memory beside rows.
constexpr uint64_t kLanesBytes = 4 * MiB, kCopiedBytes = 2 * MiB, kPage = 4096;

// The parts of a file: its header, and lanes of its tensors.
struct FileLayout {
  io::SafetensorsLayout tensors;
  std::vector<io::OutputLane> lanes;

  explicit FileLayout(std::span<const TensorToStore> stored) {
    std::vector<io::TensorToWrite> all;
    std::vector<int> numbers;
    for (const TensorToStore& t : stored) {
      int number = 0;
      for (io::TensorToWrite& w : t.written()) {
        all.push_back(std::move(w));
        numbers.push_back(number++);
      }
    }
    tensors = io::lay_out_safetensors(all, numbers);
    lanes.push_back({0, tensors.header.size()});
    for (const auto& lane : tensors.lanes) lanes.push_back({lane.begin, lane.end});
  }
  // The lanes of a tensor's planes.
  std::vector<size_t> lanes_of(const TensorToStore& stored) const {
    std::vector<size_t> found;
    for (const io::TensorToWrite& w : stored.written())
      found.push_back(1 + tensors.find(w.dtype, static_cast<int>(found.size())));
    return found;
  }
};

uint64_t file_bytes(std::span<const TensorToStore> stored) {
  return FileLayout(stored).tensors.file_bytes;
}

}  // namespace

bool TensorToStore::is_copied() const {
  if (made != nullptr || format != nullptr) return false;
  const bool is_changed = to_bf16 && stored->dtype != DType::bf16 && is_float_weight(stored->dtype);
  return !stored->column_major && !(is_changed && stored->shape.size() > 1);
}

Shape TensorToStore::shape() const {
  if (made != nullptr) return made->shape;
  return stored->column_major ? matrix_shape(*stored) : stored->shape;
}

std::vector<io::TensorToWrite> TensorToStore::written() const {
  if (format == nullptr) {
    const DType changed =
        to_bf16 ? DType::bf16 : kept_dtype(stored != nullptr ? stored->dtype : dtype);
    return {{name(), made != nullptr ? dtype : is_copied() ? stored->dtype : changed, shape()}};
  }
  std::vector<io::TensorToWrite> planes;
  for (WrittenPlane& plane : format->planes(matrix()))
    planes.push_back({stem_of(name()) + plane.suffix, plane.dtype, plane.shape});
  return planes;
}

WrittenMatrix TensorToStore::matrix() const {
  if (made != nullptr) return {made->outputs, made->inputs, dtype};
  const Shape shape = matrix_shape(*stored);
  return {shape[0], shape[1], stored->dtype};
}

WeightFormat TensorToStore::encoded_format() const {
  WeightFormat encoded = format->scheme().format(dtype, WeightLayout::rows);
  encoded.whole_blocks = encoded.scales == ScaleKind::per_block;
  return encoded;
}

uint64_t TensorToStore::bytes() const {
  return made != nullptr ? io::data_bytes({made->name, dtype, made->shape}) : stored->bytes;
}

ReadPlan TensorToStore::lay_out(Param& param) const {
  QuantizeRequest request{format != nullptr ? format->scheme() : *find_quant_scheme("none")};
  request.to_bf16 = to_bf16;
  return lay_out_matrix(*stored, request, param);
}

struct CheckpointWriter::Work {
  OutputDirectory& out;
  WriteProgress& progress;
  WriteReport& report;
  std::span<std::byte> lanes;
  Copier copier;
  MatrixLoader loader;  // of matrices by themselves
  // Half of the memory of what is made is for what is loaded.
  MatrixLoader part_loader;
  std::span<std::byte> made;
  ThreadPool pool;
  std::unique_ptr<Encoder> encoder = make_cpu_encoder(Isa::automatic);
  io::LanesOutput* file = nullptr;  // that is being written

  // Blocks of rows, each on a thread.
  EncodeStats encode(const EncodeArgs& all) {
    std::vector<EncodeStats> stats(static_cast<size_t>(ceil_div(all.rows, kScaleBlock)));
    pool.parallel_for(std::ssize(stats), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        EncodeArgs args = all;
        args.first_row = i * kScaleBlock;
        args.source += args.first_row * all.source_stride;
        args.rows = std::min<int64_t>(kScaleBlock, all.rows - args.first_row);
        stats[static_cast<size_t>(i)] = encoder->encode(args);
      }
    });
    EncodeStats sum;
    for (const EncodeStats& own : stats) sum.add(own);
    return sum;
  }
  void note_error(const EncodeStats& stats, const std::string& name) {
    const double error =
        stats.value_squares > 0 ? std::sqrt(stats.error_squares / stats.value_squares) : 0;
    if (error < report.largest_error) return;
    report.largest_error = error;
    report.least_exact = name;
  }
};

CheckpointWriter::CheckpointWriter(CheckpointWriting writing) : writing_(std::move(writing)) {
  for (const TensorToStore& t : writing_.tensors) {
    if (t.made != nullptr) continue;
    const bool is_matrix = t.stored->shape.size() == 2 && is_float_weight(t.stored->dtype);
    if (t.stored->column_major && !is_matrix)
      fail(ErrorKind::refused,
           "{}: is stored with its dimensions exchanged, as only matrices of "
           "plain elements may be",
           t.stored->name);
  }
  refuse_collisions();
  divide();
}

// Planes of a quantized matrix have new names.
void CheckpointWriter::refuse_collisions() const {
  std::unordered_set<std::string> names{"__metadata__"};  // of safetensors itself
  for (const TensorToStore& t : writing_.tensors)
    for (const io::TensorToWrite& w : t.written())
      if (!names.insert(w.name).second)
        fail(ErrorKind::refused,
             "{}: becomes {}, a name that is taken; rename the tensor in the model's files",
             t.name(), w.name);
}

std::span<const TensorToStore> CheckpointWriter::tensors_of(const File& file) const {
  return std::span(writing_.tensors).subspan(file.first, file.end - file.first);
}

// Fills one file after another, as the Hugging Face libraries do.
void CheckpointWriter::divide() {
  uint64_t bytes = 0;
  for (size_t i = 0; i < writing_.tensors.size(); ++i) {
    uint64_t more = 0;
    for (const io::TensorToWrite& w : writing_.tensors[i].written()) more += io::data_bytes(w);
    if (files_.empty() || (bytes > 0 && bytes + more > writing_.most_file_bytes)) {
      files_.push_back({{}, i, i});
      bytes = 0;
    }
    files_.back().end = i + 1;
    bytes += more;
  }
  for (size_t i = 0; i < files_.size(); ++i)
    files_[i].name = files_.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files_.size());
}

uint64_t CheckpointWriter::least_memory() const {
  uint64_t most = least_to_make();
  std::set<std::tuple<DType, int64_t, int64_t, const void*>> seen;
  for (const TensorToStore& t : writing_.tensors) {
    if (t.made != nullptr || t.is_copied() || t.stored->bytes == 0) continue;
    const Shape shape = matrix_shape(*t.stored);
    if (!seen.insert({t.stored->dtype, shape[0], shape[1], t.format}).second) continue;
    Param param;
    most = std::max(most, spill_window(t.lay_out(param), 0, 0).least_memory);
  }
  return kLanesBytes + kCopiedBytes + most;
}

// The memory that making has is halved: for what is loaded, and for rows.
uint64_t CheckpointWriter::least_to_make() const {
  std::set<uint32_t> seen;
  uint64_t most = 0;
  for (const TensorToStore& t : writing_.tensors) {
    if (t.made == nullptr) continue;
    for (const HubPart& part : t.made->parts)
      for (const SourceRows& source : *part.sources)
        if (seen.insert(writing_.plan->tensors[source.tensor].alike).second)
          most = std::max(most, spill_window(*writing_.plan, source.tensor, 0).least_memory);
    const int64_t rows = t.format == nullptr ? 1 : kScaleBlock;
    uint64_t own = HubRows::needed(*t.made, t.dtype, writing_.options.threads, rows);
    if (t.format != nullptr)
      own += storage_bytes(t.encoded_format(), rows, t.made->inputs) + kCellBytes;
    most = std::max(most, own);
  }
  return 2 * round_up(most, kPage);
}

uint64_t CheckpointWriter::needed_bytes(const OutputDirectory& out) const {
  uint64_t bytes = 0;
  for (const File& file : files_)
    if (!out.finished(file.name)) bytes += file_bytes(tensors_of(file));
  return bytes;
}

WriteReport CheckpointWriter::write(OutputDirectory& out, std::span<std::byte> memory,
                                    WriteProgress& progress) {
  const std::span<std::byte> lanes = memory.first(kLanesBytes),
                             copied = memory.subspan(kLanesBytes, kCopiedBytes),
                             rest = memory.subspan(kLanesBytes + kCopiedBytes);
  const size_t half = round_down(rest.size() / 2, kPage);
  const auto loading = [&](std::span<std::byte> part) {
    return MatrixLoading{.index = writing_.index,
                         .options = writing_.options,
                         .memory = part,
                         .stop = writing_.stop};
  };
  WriteReport report{.files = files_.size()};
  Work work{.out = out,
            .progress = progress,
            .report = report,
            .lanes = lanes,
            .copier = Copier(writing_.index, copied, writing_.stop),
            .loader = MatrixLoader(loading(rest)),
            .part_loader = MatrixLoader(loading(rest.first(half))),
            .made = rest.subspan(half),
            .pool = ThreadPool(writing_.options.threads)};
  for (const TensorToStore& t : writing_.tensors) progress.bytes_total += t.bytes();
  progress.files_total = static_cast<uint32_t>(files_.size());
  for (const File& file : files_) {
    write_file(file, work);
    report.bytes += file_bytes(tensors_of(file));
    ++progress.files_done;
  }
  writing_.index.refuse_changes();
  if (files_.size() > 1) write_index(out, lanes);
  return report;
}

// Writes a file, unless it is there.
void CheckpointWriter::write_file(const File& file, Work& work) {
  const FileLayout layout(tensors_of(file));
  const OutputFile output{file.name, layout.lanes, layout.tensors.file_bytes};
  const bool was_there = write_output_file(
      output, work.out, work.lanes, writing_.verify, writing_.stop, [&](io::LanesOutput& to) {
        work.file = &to;
        to.write(0, std::as_bytes(std::span(layout.tensors.header)));
        for (const TensorToStore& t : tensors_of(file)) {
          write_tensor(t, layout.lanes_of(t), work);
          work.progress.bytes_done += t.bytes();
        }
      });
  if (!was_there) return;
  ++work.report.kept_files;
  for (const TensorToStore& t : tensors_of(file)) work.progress.bytes_done += t.bytes();
}

void CheckpointWriter::write_tensor(const TensorToStore& tensor, const std::vector<size_t>& lanes,
                                    Work& work) {
  if (tensor.made != nullptr) return make_tensor(tensor, lanes, work);
  const io::StoredTensor& stored = *tensor.stored;
  const auto write = [&](size_t plane, std::span<const std::byte> bytes) {
    work.file->write(lanes[plane], bytes);
  };
  if (tensor.is_copied()) {
    work.copier.use([&](std::span<const std::byte> bytes) { write(0, bytes); });
    work.copier.copy(stored.file, stored.offset, stored.bytes);
    work.copier.flush();
    return;
  }
  if (stored.bytes == 0) return;
  Param param;
  const ReadPlan plan = tensor.lay_out(param);
  EncodeStats stats;
  work.loader.load(plan, 0, [&](const MatrixRows& loaded) {
    const Weight& weight = loaded.encoded;
    stats.add(loaded.stats);
    if (tensor.format != nullptr)
      tensor.format->put(weight, loaded.first, loaded.rows, tensor.matrix(), write);
    else
      write(0, {weight.data,
                static_cast<size_t>(loaded.rows) * row_bytes(weight.format.dtype, weight.cols)});
    return true;
  });
  if (tensor.format != nullptr) work.note_error(stats, tensor.name());
}

void CheckpointWriter::make_tensor(const TensorToStore& tensor, const std::vector<size_t>& lanes,
                                   Work& work) {
  const HubTensor& made = *tensor.made;
  const WrittenFormat::Write write = [&](size_t plane, std::span<const std::byte> bytes) {
    work.file->write(lanes[plane], bytes);
  };
  if (tensor.format != nullptr) return quantize_tensor(tensor, write, work);
  HubRows rows(*writing_.plan, work.part_loader, work.pool, work.made);
  rows.each(made, tensor.dtype,
            HubRows::rows_in(made, tensor.dtype, work.pool.size(), work.made.size()),
            [&](std::span<const std::byte> bytes, int64_t, int64_t) { write(0, bytes); });
}

// Whole blocks of rows at once, behind which their codes are. A scale of all rows is found before.
void CheckpointWriter::quantize_tensor(const TensorToStore& tensor,
                                       const WrittenFormat::Write& write, Work& work) {
  const HubTensor& made = *tensor.made;
  const WeightFormat format = tensor.encoded_format();
  const auto needed = [&](int64_t rows) {
    return HubRows::needed(made, tensor.dtype, work.pool.size(), rows);
  };
  const uint64_t fixed = needed(0) + kCellBytes;
  const uint64_t block =
      needed(kScaleBlock) - needed(0) + storage_bytes(format, kScaleBlock, made.inputs);
  const uint64_t room = work.made.size() - std::min<uint64_t>(work.made.size(), fixed);
  const int64_t count = static_cast<int64_t>(room / block) * kScaleBlock;
  const auto own = static_cast<size_t>(round_up(needed(count), kCellBytes));
  HubRows rows(*writing_.plan, work.part_loader, work.pool, work.made.first(own));
  EncodeArgs args{.stored = tensor.dtype,
                  .source_stride = made.inputs * dtype_bytes(tensor.dtype),
                  .group = tensor.format->scheme().group,
                  .to = {}};
  if (has_tensor_scale(args.group)) {
    rows.each(made, tensor.dtype, count, [&](std::span<const std::byte> bytes, int64_t, int64_t n) {
      const float most =
          work.encoder->absolute_max(bytes.data(), args.stored, args.source_stride, n, made.inputs);
      args.tensor_amax = std::max(args.tensor_amax, most);
    });
  }
  EncodeStats stats;
  rows.each(made, tensor.dtype, count, [&](std::span<std::byte> bytes, int64_t first, int64_t n) {
    args.source = bytes.data();
    args.rows = n;
    args.to = weight_in(format, round_to(n, kPanelRows), made.inputs, work.made.data() + own);
    stats.add(work.encode(args));
    tensor.format->put(args.to, first, n, tensor.matrix(), write);
  });
  if (stats.not_finite > 0)
    fail(ErrorKind::refused, "{}: {} of its values are no finite {}: the checkpoint is damaged",
         made.name, stats.not_finite, dtype_name(tensor.dtype));
  work.note_error(stats, made.name);
}

// Text is made twice: for its length, and to be written.
void CheckpointWriter::write_index(const OutputDirectory& out, std::span<std::byte> block) const {
  uint64_t bytes = 0;
  const auto each_line = [&](const auto& f) {
    std::string_view before = "\n";
    for (const File& file : files_) {
      for (const TensorToStore& t : tensors_of(file)) {
        for (const io::TensorToWrite& w : t.written()) {
          f(fmt::format("{}    {}: \"{}\"", before, Json(w.name).dump(), file.name), w);
          before = ",\n";
        }
      }
    }
  };
  constexpr std::string_view kEnd = "\n  }\n}\n";
  uint64_t length = kEnd.size();
  each_line([&](const std::string& line, const io::TensorToWrite& tensor) {
    length += line.size();
    bytes += io::data_bytes(tensor);
  });
  const std::string begin =
      fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{", bytes);
  io::BlockOutput index(out.path() / "model.safetensors.index.json", begin.size() + length, block,
                        writing_.stop);
  index.write(begin);
  each_line([&](const std::string& line, const io::TensorToWrite&) { index.write(line); });
  index.write(kEnd);
  index.finish();
}

}  // namespace sluice
