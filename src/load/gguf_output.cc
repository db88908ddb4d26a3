#include "src/load/gguf_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "io/checkpoint/read_tensors.h"
#include "quant/blocks.h"
#include "quant/encode.h"
#include "quant/encode_blocks.h"
#include "quant/float8.h"
#include "quant/groups.h"
#include "quant/make_blocks.h"
#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/thread_pool.h"
#include "src/base/units.h"
#include "src/plan/lay_out.h"
#include "src/plan/spill_window.h"

namespace sluice {
namespace {

constexpr uint64_t kLaneBytes = 4 * MiB, kPageBytes = 4096;
constexpr int64_t kRowsTogether = 64;  // at least, where rows stay in their order

std::vector<io::TensorToWrite> written(std::span<const GgufTensor> tensors) {
  std::vector<io::TensorToWrite> all;
  for (const GgufTensor& t : tensors) all.push_back(t.written());
  return all;
}

int64_t cols_of(const GgufTensor& tensor) { return tensor.shape[tensor.shape.size() - 1]; }

uint64_t made_row_bytes(const GgufTensor& tensor) {
  return row_bytes(tensor.type, cols_of(tensor));
}

bool is_turned(const GgufRows& rows) { return rows.order.kind == SourceOrder::Kind::turned; }

// Rows of the plan's tensor that are loaded together: heads whose rows change places.
int64_t rows_together(const GgufRows& rows) {
  if (is_turned(rows)) return rows.order.of;
  return std::max<int64_t>(rows.order.block, 1);
}

// Floats beside rows that are made: a row of each thread, or two where columns change places, and a
// matrix that is turned.
size_t scratch_floats(const GgufTensor& tensor, int threads) {
  const int64_t each = tensor.columns.kind == SourceOrder::Kind::same ? 1 : 2;
  int64_t turned = 0;
  for (const GgufRows& rows : tensor.rows)
    if (is_turned(rows)) turned = std::max(turned, rows.order.block * rows.order.of);
  return static_cast<size_t>(threads * each * cols_of(tensor) + turned);
}

// All rows of a plan that has a whole tensor.
GgufRows all_rows(const GgufTensor& tensor) {
  return {.rows = *tensor.shape.elements() / cols_of(tensor)};
}

// Returns whether no element, and no scale of a block, is beyond its type.
bool is_finite(DType type, std::span<const float> row, const std::byte* made) {
  constexpr float kAboveF16 = 65520;  // rounds to infinity
  if (type == DType::f16)
    return std::ranges::all_of(row, [](float value) { return std::abs(value) < kAboveF16; });
  if (!is_block(type)) return true;
  const auto blocks = std::ssize(row) / block_layout(type).cols;
  return not_finite_cols(type, reinterpret_cast<const uint8_t*>(made), blocks) == 0;
}

void decode(const Weight& weight, int64_t row, float* to) {
  is_grouped(weight.format) ? decode_grouped_row(weight, row, to) : decode_row(weight, row, to);
}

// An element of a stored vector.
float element_at(const std::string& bytes, DType type, int64_t at) {
  const auto element = static_cast<size_t>(dtype_bytes(type));
  const char* from = bytes.data() + static_cast<size_t>(at) * element;
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  switch (type) {
    case DType::f64:
      return static_cast<float>(read(double{}));
    case DType::f32:
      return read(float{});
    case DType::f16:
      return f16_to_float(read(uint16_t{}));
    case DType::bf16:
      return bf16_to_float(read(uint16_t{}));
    default:
      check(false, "a vector of a type that gguf_tensors() takes");
      return 0;
  }
}

}  // namespace

struct GgufOutput::Work {
  Work(const MatrixLoading& loading, std::span<std::byte> memory, int threads, WriteProgress& shown)
      : loader(loading), rows(memory), pool(threads), progress(shown) {}

  MatrixLoader loader;
  std::span<std::byte> rows;  // that are made
  ThreadPool pool;
  WriteProgress& progress;
  io::LanesOutput* file = nullptr;

  void write(std::span<const std::byte> bytes) {
    file->write(0, bytes);
    progress.bytes_done += bytes.size();
  }
};

GgufOutput::GgufOutput(GgufWriting writing) : writing_(std::move(writing)) { divide(); }

std::span<const GgufTensor> GgufOutput::tensors_of(const File& file) const {
  return std::span(writing_.model.tensors).subspan(file.first, file.end - file.first);
}

void GgufOutput::divide() {
  constexpr size_t kMostFiles = UINT16_MAX;  // of split.count
  uint64_t bytes = 0;
  const std::vector<GgufTensor>& tensors = writing_.model.tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t more = io::data_bytes(tensors[i].written());
    if (files_.empty() || (bytes > 0 && bytes + more > writing_.most_file_bytes)) {
      files_.push_back({.first = i, .end = i});
      bytes = 0;
    }
    files_.back().end = i + 1;
    bytes += more;
  }
  if (files_.size() > kMostFiles)
    fail(ErrorKind::usage, "--max-shard-size: makes {} files; a GGUF model has at most {}",
         files_.size(), kMostFiles);
  for (size_t i = 0; i < files_.size(); ++i) {
    File& file = files_[i];
    file.layout = io::lay_out_gguf(writing_.model.metadata,
                                   {.file = i, .files = files_.size(), .tensors = tensors.size()},
                                   written(tensors_of(file)));
    file.file = {.name = files_.size() == 1
                             ? "model.gguf"
                             : fmt::format("model-{:05}-of-{:05}.gguf", i + 1, files_.size()),
                 .lanes = {{0, file.layout.file_bytes}},
                 .bytes = file.layout.file_bytes};
  }
}

uint64_t GgufOutput::least_to_make(const ReadPlan& plan, const GgufRows& rows,
                                   const GgufTensor& tensor) const {
  const int64_t step = row_step(plan, rows.tensor);
  const auto together = static_cast<uint64_t>(std::lcm(step, rows_together(rows)));
  // Half of the memory is for the load: its least has room for a step.
  const uint64_t load =
      spill_window(plan, rows.tensor, 0).least_memory * 2 * together / static_cast<uint64_t>(step);
  const uint64_t made = static_cast<uint64_t>(kRowsTogether) * made_row_bytes(tensor) +
                        scratch_floats(tensor, writing_.options.threads) * sizeof(float) +
                        kPageBytes;
  return 2 * round_up(std::max(load, made), kPageBytes);
}

uint64_t GgufOutput::least_memory() const {
  uint64_t most = 0;
  for (const GgufTensor& t : writing_.model.tensors)
    for (const GgufRows& rows : t.rows)
      most = std::max(most, least_to_make(writing_.model.plan, rows, t));
  for (const GgufTensor& t : writing_.model.tensors) {
    if (t.whole == nullptr) continue;
    Param param;
    const ReadPlan plan = lay_out_matrix(*t.whole, {*find_quant_scheme("none")}, param);
    most = std::max(most, least_to_make(plan, all_rows(t), t));
  }
  return kLaneBytes + most;
}

uint64_t GgufOutput::needed_bytes(const OutputDirectory& out) const {
  uint64_t bytes = 0;
  for (const File& file : files_)
    if (!out.finished(file.file.name)) bytes += file.file.bytes;
  return bytes;
}

WriteReport GgufOutput::write(OutputDirectory& out, std::span<std::byte> memory,
                              WriteProgress& progress) {
  const std::span<std::byte> lanes = memory.first(kLaneBytes), rest = memory.subspan(kLaneBytes);
  const size_t half = round_down(rest.size() / 2, kPageBytes);
  WriteReport report{.files = files_.size()};
  Work work({.index = writing_.index,
             .options = writing_.options,
             .memory = rest.first(half),
             .stop = writing_.stop},
            rest.subspan(half), writing_.options.threads, progress);
  for (const File& file : files_) progress.bytes_total += file.file.bytes;
  progress.files_total = static_cast<uint32_t>(files_.size());
  for (const File& file : files_) {
    const auto fill = [&](io::LanesOutput& output) {
      work.file = &output;
      work.write(std::as_bytes(std::span(file.layout.header)));
      for (size_t t = 0; const GgufTensor& tensor : tensors_of(file)) {
        write_tensor(tensor, work);
        constexpr std::array<std::byte, io::kGgufAlignment> kZeros{};
        work.write(std::span(kZeros).first(file.layout.padding[t++]));
      }
    };
    const bool was_there =
        write_output_file(file.file, out, lanes, writing_.verify, writing_.stop, fill);
    if (was_there) progress.bytes_done += file.file.bytes;
    report.kept_files += was_there ? 1 : 0;
    report.bytes += file.file.bytes;
    ++progress.files_done;
  }
  writing_.index.refuse_changes();
  return report;
}

void GgufOutput::write_tensor(const GgufTensor& tensor, Work& work) const {
  if (tensor.is_vector()) return write_vector(tensor, work);
  for (const GgufRows& rows : tensor.rows) write_rows(writing_.model.plan, rows, tensor, work);
  if (tensor.whole == nullptr) return;
  Param param;
  const ReadPlan plan = lay_out_matrix(*tensor.whole, {*find_quant_scheme("none")}, param);
  write_rows(plan, all_rows(tensor), tensor, work);
}

void GgufOutput::write_vector(const GgufTensor& tensor, Work& work) const {
  std::vector<float> made = tensor.numbers;
  const io::StoredTensor* read = nullptr;
  std::string bytes;
  for (const auto& [from, piece, order] : tensor.elements) {
    if (from != read) bytes = io::read_tensors(writing_.index, std::array{from}).front();
    read = from;
    const int64_t begin = piece.view.index.value_or(0) * from->shape[from->shape.size() - 1];
    for (int64_t i = 0; i < piece.outputs(); ++i) {
      const int64_t at = begin + piece.stored_output(order.source_of(i));
      const float value = element_at(bytes, from->dtype, at) + tensor.offset;
      made.push_back(tensor.is_rate ? -std::exp(value) : value);
    }
  }
  work.write(std::as_bytes(std::span(made)));
}

void GgufOutput::write_rows(const ReadPlan& plan, const GgufRows& rows, const GgufTensor& tensor,
                            Work& work) const {
  const auto take = [&](const MatrixRows& loaded) {
    if (is_turned(rows)) {
      make_turned(loaded, rows, tensor, work);
      return true;
    }
    const int64_t begin = std::max(rows.first, loaded.first),
                  end = std::min(rows.end(), loaded.first + loaded.rows);
    make_rows(std::max<int64_t>(end - begin, 0), tensor, work, [&](int64_t row, float* to) {
      decode(loaded.encoded, rows.order.source_of(begin + row) - loaded.first, to);
    });
    return true;
  };
  work.loader.load(plan, rows.tensor, rows.first, rows.end(), take, rows_together(rows));
}

// Makes as many rows at once as there is room for.
template <class RowOf>
void GgufOutput::make_rows(int64_t count, const GgufTensor& tensor, Work& work,
                           RowOf row_of) const {
  const auto cols = static_cast<size_t>(cols_of(tensor));
  const uint64_t bytes = made_row_bytes(tensor);
  const size_t scratch = scratch_floats(tensor, work.pool.size()) * sizeof(float);
  auto* const values = reinterpret_cast<float*>(work.rows.data());
  const std::span<std::byte> made = work.rows.subspan(round_up(scratch, kPageBytes));
  const auto most = static_cast<int64_t>(made.size() / bytes);
  if (most == 0) fail(ErrorKind::no_fit, "{}: has no room for its rows", tensor.name);
  const bool moves = tensor.columns.kind != SourceOrder::Kind::same;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t rows = std::min(most, count - first);
    std::atomic<bool> finite = true;
    work.pool.parallel_for(rows, 8, [&](int64_t begin, int64_t end, int worker) {
      const std::span<float> row(values + static_cast<size_t>(worker) * cols * (moves ? 2 : 1),
                                 cols);
      float* const stored = moves ? row.data() + cols : row.data();
      for (int64_t r = begin; r < end; ++r) {
        row_of(first + r, stored);
        for (size_t c = 0; moves && c < cols; ++c)
          row[c] = stored[tensor.columns.source_of(static_cast<int64_t>(c))];
        std::byte* const to = made.data() + static_cast<uint64_t>(r) * bytes;
        make_row(tensor.type, row, to);
        if (!is_finite(tensor.type, row, to)) finite = false;
      }
    });
    if (!finite)
      fail(ErrorKind::refused, "{}: has values that {} cannot hold; give another --quantization",
           tensor.name, dtype_name(tensor.type));
    work.write(made.first(static_cast<uint64_t>(rows) * bytes));
  }
}

// The columns of each matrix of a head become rows.
void GgufOutput::make_turned(const MatrixRows& loaded, const GgufRows& rows,
                             const GgufTensor& tensor, Work& work) const {
  const int64_t inputs = rows.order.of, outputs = rows.order.block;
  auto* const head = reinterpret_cast<float*>(work.rows.data()) +
                     scratch_floats(tensor, work.pool.size()) - inputs * outputs;
  for (int64_t first = loaded.first; first < loaded.first + loaded.rows; first += inputs) {
    work.pool.parallel_for(inputs, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        decode(loaded.encoded, first - loaded.first + r, head + r * outputs);
    });
    make_rows(outputs, tensor, work, [&](int64_t row, float* to) {
      for (int64_t c = 0; c < inputs; ++c) to[c] = head[c * outputs + row];
    });
  }
}

}  // namespace sluice
