// A report as --report wrote it, read and checked: what the page, the trace and the comparison are
// made of. Files are untrusted; what is not as docs/formats.md says is an Error(refused).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/memory/report.h"

namespace sluice::cli {

// The figures by which two reports are compared, in the order of the output.
enum class Figure : uint8_t {
  predicted_peak,
  measured_peak,
  ledger_peak,
  cgroup_peak,
  weights_bytes,
  bytes_read,  // by the load and, where weights are streamed, by every pass
  read_amplification,
  bytes_per_sweep,
  stream_wait_seconds,
  load_seconds,
  load_bytes_per_second,
  prefill_tokens_per_second,
  decode_tokens_per_second,
  worst_quantization_error,
};
inline constexpr size_t kFigures = 14;

enum class FigureUnit : uint8_t { bytes, seconds, bytes_per_second, tokens_per_second, ratio };
// The threshold that applies. `none`: shown but not judged, as it depends on other programs.
enum class FigureKind : uint8_t { memory, speed, error, none };

struct FigureInfo {
  std::string_view name;   // in JSON
  std::string_view label;  // for people
  FigureUnit unit;
  FigureKind kind;
  bool less_is_worse;
};
const FigureInfo& figure_info(Figure figure);
// "42.3 MiB", "1.25 GB/s", "0.503 s".
std::string figure_text(Figure figure, double value);

struct QuantizedTensor {
  std::string name;
  std::string stored;
  std::string kept;
  double relative_rms_error = 0;
  double max_error = 0;
};

// The cost of a unit's streamed weights: bytes read, and seconds in which one side waited.
struct UnitStalls {
  std::string name;
  uint64_t bytes = 0;
  double disk = 0;     // compute waited for bytes
  double compute = 0;  // the disk waited: all buffers held tiles that nobody had used
  double copy = 0;     // for encoding and copying
  double total() const { return disk + compute + copy; }
};

struct DiskSample {
  double seconds = 0;  // on the clock of the memory timeline
  uint64_t bytes = 0;  // read until then
};

struct ReportData {
  std::string verb;
  std::string model;
  std::string architecture;
  std::string quantization;
  std::string reader;
  std::array<std::optional<double>, kFigures> figures;  // none: the report does not have it
  std::vector<QuantizedTensor> quantized;
  std::vector<UnitStalls> units;  // empty: nothing was streamed, or not measured
  std::vector<DiskSample> disk;   // empty: not measured
  MemoryReport memory;
  double end = 0;  // the last moment that the report knows of, seconds

  std::optional<double> figure(Figure f) const { return figures[static_cast<size_t>(f)]; }
};

// `where` names the file in errors.
ReportData report_data(const Json& report, const std::string& where);

}  // namespace sluice::cli
