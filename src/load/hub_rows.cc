#include "src/load/hub_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "quant/encode.h"
#include "quant/float8.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

int64_t file_rows(const HubTensor& t) { return t.is_transposed ? t.inputs : t.outputs; }
int64_t file_cols(const HubTensor& t) { return t.is_transposed ? t.outputs : t.inputs; }

// Elements of a source's row.
int64_t source_cols(const HubTensor& t) {
  int64_t most = t.inputs;
  for (const HubPart& part : t.parts) most = std::max(most, part.order.block);
  return most;
}

uint64_t scratch_bytes(const HubTensor& t, int threads) {
  const auto cols = round_up(static_cast<uint64_t>(source_cols(t)) * sizeof(float), kCellBytes);
  return cols * static_cast<uint64_t>(threads);
}

void store(float value, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, &value, sizeof value);
  } else if (is_integer_vector(dtype)) {
    const auto whole = static_cast<int64_t>(value);
    std::memcpy(to, &whole, static_cast<size_t>(dtype_bytes(dtype)));  // little-endian
  } else {
    const uint16_t half = dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
    std::memcpy(to, &half, sizeof half);
  }
}

// The elements of a row of a matrix.
void store_row(const float* values, int64_t count, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, values, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::bf16) {
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t half = float_to_bf16(values[i]);
      std::memcpy(to + i * sizeof half, &half, sizeof half);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) store(values[i], dtype, to + i * dtype_bytes(dtype));
  }
}

}  // namespace

// Rows [first, end) of the file's matrix, in `bytes`; scratch of a thread for a source's row.
struct HubRows::Window {
  int64_t first = 0;
  int64_t end = 0;
  DType dtype = DType::bf16;
  std::span<std::byte> bytes;
  std::span<std::byte> scratch;

  std::byte* at(int64_t row, int64_t col, int64_t cols) const {
    return bytes.data() + ((row - first) * cols + col) * dtype_bytes(dtype);
  }
  float* row_of(int worker, int64_t cols) const {
    const auto each = round_up(static_cast<uint64_t>(cols) * sizeof(float), kCellBytes);
    return reinterpret_cast<float*>(scratch.data() + static_cast<uint64_t>(worker) * each);
  }
};

namespace {

// Elements of the longest vector of the source that has elements of the tensor.
int64_t longest_source(const HubTensor& tensor) {
  int64_t most = 0;
  for (const HubPart& part : tensor.parts)
    for (const SourceRows& source : *part.sources) most = std::max(most, source.rows);
  return most;
}

}  // namespace

uint64_t HubRows::needed(const HubTensor& tensor, DType dtype, int threads, int64_t rows) {
  const auto element = static_cast<uint64_t>(dtype_bytes(dtype));
  if (tensor.is_vector)
    return element * static_cast<uint64_t>(tensor.matrices * tensor.outputs) + kCellBytes +
           sizeof(float) * static_cast<uint64_t>(longest_source(tensor));
  return scratch_bytes(tensor, threads) + static_cast<uint64_t>(rows * file_cols(tensor)) * element;
}

int64_t HubRows::rows_in(const HubTensor& tensor, DType dtype, int threads, uint64_t memory) {
  const uint64_t least = needed(tensor, dtype, threads, 0);
  const uint64_t row = static_cast<uint64_t>(file_cols(tensor) * dtype_bytes(dtype));
  return memory < least ? 0 : static_cast<int64_t>((memory - least) / std::max<uint64_t>(row, 1));
}

void HubRows::each(const HubTensor& tensor, DType dtype, int64_t rows, const Take& take) {
  if (tensor.is_vector) return make_vector(tensor, dtype, take);
  if (rows < 1)
    fail(ErrorKind::no_fit, "{}: a row of it has no room in {} of memory", tensor.name,
         format_size(memory_.size()));
  for (int64_t matrix = 0; matrix < tensor.matrices; ++matrix)
    each_row(tensor, matrix, dtype, rows, take);
}

void HubRows::each_row(const HubTensor& tensor, int64_t matrix, DType dtype, int64_t rows,
                       const Take& take) {
  const std::vector<RowRun> runs = tensor.runs(matrix);
  const uint64_t scratch = scratch_bytes(tensor, pool_.size());
  const int64_t all = file_rows(tensor), cols = file_cols(tensor);
  for (int64_t first = 0; first < all; first += rows) {
    const int64_t end = std::min(first + rows, all);
    const auto bytes = static_cast<size_t>((end - first) * cols * dtype_bytes(dtype));
    const Window window{first, end, dtype, memory_.subspan(scratch, bytes), memory_.first(scratch)};
    fill(tensor, runs, window);
    take(window.bytes, matrix * all + first, end - first);
  }
}

// Brings the runs into the source's order, and loads neighbours together.
void HubRows::fill(const HubTensor& tensor, std::vector<RowRun> runs, const Window& window) {
  if (!tensor.is_transposed) {
    std::vector<RowRun> own;
    for (RowRun run : runs) {
      const int64_t skip = std::max<int64_t>(window.first - run.output, 0);
      run.rows = std::min(run.rows, window.end - run.output) - skip;
      if (run.rows <= 0) continue;
      run.output += skip;
      (run.turned > 0 ? run.column : run.first) += skip * (run.turned > 0 ? 1 : run.step);
      own.push_back(run);
    }
    runs = std::move(own);
  }
  std::ranges::sort(runs, {}, [](const RowRun& r) { return std::tuple(r.tensor, r.first); });
  for (size_t i = 0; i < runs.size();) {
    size_t next = i + 1;
    int64_t used = runs[i].source_end() - runs[i].first, end = runs[i].source_end();
    for (; next < runs.size() && runs[next].tensor == runs[i].tensor; ++next) {
      const int64_t more = std::max(end, runs[next].source_end());
      used += runs[next].source_end() - runs[next].first;
      if (more - runs[i].first > 2 * used) break;
      end = more;
    }
    load(tensor, std::span(runs).subspan(i, next - i), window);
    i = next;
  }
}

void HubRows::load(const HubTensor& tensor, std::span<const RowRun> runs, const Window& window) {
  int64_t end = 0;
  for (const RowRun& run : runs) end = std::max(end, run.source_end());
  loader_.load(plan_, runs.front().tensor, runs.front().first, end, [&](const MatrixRows& loaded) {
    for (const RowRun& run : runs)
      run.turned > 0 ? put_turned(run, loaded, window) : put(tensor, run, loaded, window);
    return true;
  });
}

// The rows of a run that are loaded.
void HubRows::put(const HubTensor& tensor, const RowRun& run, const MatrixRows& loaded,
                  const Window& window) {
  const int64_t begin = std::max<int64_t>(0, ceil_div(loaded.first - run.first, run.step));
  const int64_t end =
      std::min(run.rows, ceil_div(loaded.first + loaded.rows - run.first, run.step));
  constexpr int64_t kGrain = 8;
  pool_.parallel_for(
      std::max<int64_t>(end - begin, 0), kGrain, [&](int64_t from, int64_t to, int worker) {
        float* values = window.row_of(worker, source_cols(tensor));
        for (int64_t i = begin + from; i < begin + to; ++i) {
          decode_row(loaded.encoded, run.first + i * run.step - loaded.first, values);
          const int64_t output = run.output + i;
          if (tensor.is_transposed) {
            for (int64_t c = window.first; c < window.end; ++c)
              store(values[c], window.dtype, window.at(c, output, tensor.outputs));
            continue;
          }
          std::byte* row = window.at(output, 0, tensor.inputs);
          if (tensor.columns.kind == SourceOrder::Kind::same) {
            store_row(values, tensor.inputs, window.dtype, row);
            continue;
          }
          for (int64_t c = 0; c < tensor.inputs; ++c)
            store(values[tensor.columns.source_of(c)], window.dtype,
                  row + c * dtype_bytes(window.dtype));
        }
      });
}

// Each of the source's rows is a column of the run.
void HubRows::put_turned(const RowRun& run, const MatrixRows& loaded, const Window& window) {
  const int64_t begin = std::max(run.first, loaded.first);
  const int64_t end = std::min(run.first + run.turned, loaded.first + loaded.rows);
  for (int64_t source = begin; source < end; ++source) {
    float* values = window.row_of(0, loaded.encoded.cols);
    decode_row(loaded.encoded, source - loaded.first, values);
    for (int64_t i = 0; i < run.rows; ++i)
      store(values[run.column + i], window.dtype,
            window.at(run.output + i, source - run.first, run.turned));
  }
}

void HubRows::make_vector(const HubTensor& tensor, DType dtype, const Take& take) {
  const auto bytes = static_cast<size_t>(tensor.matrices * tensor.outputs * dtype_bytes(dtype));
  if (needed(tensor, dtype, 1, 1) > memory_.size())
    fail(ErrorKind::no_fit, "{}: has no room in {} of memory", tensor.name,
         format_size(memory_.size()));
  const std::span<std::byte> made = memory_.first(bytes);
  const std::span<std::byte> scratch = memory_.subspan(round_up(bytes, kCellBytes));
  for (int64_t matrix = 0; matrix < tensor.matrices; ++matrix) {
    std::vector<RowRun> runs = tensor.runs(matrix);
    std::ranges::stable_sort(runs, {}, &RowRun::tensor);
    for (size_t i = 0; i < runs.size();) {
      const uint32_t source = runs[i].tensor;
      float* values = reinterpret_cast<float*>(scratch.data());
      loader_.load(plan_, source, [&](const MatrixRows& loaded) {
        Weight own = loaded.encoded;
        own.cols = plan_.params[plan_.tensors[source].param]
                       .param->pieces[plan_.tensors[source].piece]
                       .cols;
        decode_row(own, 0, values);
        return true;
      });
      for (; i < runs.size() && runs[i].tensor == source; ++i) {
        for (int64_t k = 0; k < runs[i].rows; ++k) {
          float value = values[runs[i].first + k * runs[i].step] + tensor.added;
          if (tensor.is_log) {
            if (!(value < 0))
              fail(ErrorKind::refused, "{}: has a rate that is not negative: the file is damaged",
                   tensor.name);
            value = std::log(-value);
          }
          store(value, dtype,
                made.data() + (matrix * tensor.outputs + runs[i].output + k) * dtype_bytes(dtype));
        }
      }
    }
  }
  take(made, 0, 1);
}

}  // namespace sluice
