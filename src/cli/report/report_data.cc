#include "src/cli/report/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::cli {
namespace {

// A figure's place in the report; no key: it is computed.
struct FigureSource {
  FigureInfo info;
  const char* section;
  const char* key;
};

constexpr bool kMoreIsWorse = false;
constexpr bool kLessIsWorse = true;

constexpr std::array<FigureSource, kFigures> kSources{{
    {{"predicted_peak", "predicted peak", FigureUnit::bytes, FigureKind::memory, kMoreIsWorse},
     "memory",
     "predicted_peak"},
    {{"measured_peak", "measured peak", FigureUnit::bytes, FigureKind::memory, kMoreIsWorse},
     "memory",
     "measured_peak"},
    {{"ledger_peak", "ledger peak", FigureUnit::bytes, FigureKind::memory, kMoreIsWorse},
     "memory",
     "ledger_peak"},
    // The cgroup's peak counts everything that it ever held, also what ran before and beside.
    {{"cgroup_peak", "cgroup peak", FigureUnit::bytes, FigureKind::none, kMoreIsWorse},
     "memory",
     "cgroup_peak"},
    // Counts in the peaks; where weights are streamed, more of them in memory is what one wants.
    {{"weights_bytes", "weights in memory", FigureUnit::bytes, FigureKind::none, kMoreIsWorse},
     "load",
     "weights_bytes"},
    {{"bytes_read", "read from disk", FigureUnit::bytes, FigureKind::memory, kMoreIsWorse},
     "load",
     "bytes_read"},
    // The bytes read say the same, and where weights are streamed the load is a small remainder.
    {{"read_amplification", "read amplification", FigureUnit::ratio, FigureKind::none,
      kMoreIsWorse},
     "load",
     "read_amplification"},
    {{"bytes_per_sweep", "read for each pass", FigureUnit::bytes, FigureKind::memory, kMoreIsWorse},
     "stream",
     "bytes_per_sweep"},
    // A part of what the tokens a second show already, and near nothing where the disk keeps up.
    {{"stream_wait_seconds", "waited for the disk", FigureUnit::seconds, FigureKind::none,
      kMoreIsWorse},
     "stream",
     "wait_seconds"},
    {{"load_seconds", "load time", FigureUnit::seconds, FigureKind::speed, kMoreIsWorse},
     "load",
     "seconds"},
    {{"load_bytes_per_second", "load rate", FigureUnit::bytes_per_second, FigureKind::speed,
      kLessIsWorse},
     "load",
     "bytes_per_second"},
    {{"prefill_tokens_per_second", "prefill", FigureUnit::tokens_per_second, FigureKind::speed,
      kLessIsWorse},
     "timings",
     "prefill_tokens_per_second"},
    {{"decode_tokens_per_second", "decode", FigureUnit::tokens_per_second, FigureKind::speed,
      kLessIsWorse},
     "timings",
     "decode_tokens_per_second"},
    {{"worst_quantization_error", "worst relative RMS error", FigureUnit::ratio, FigureKind::error,
      kMoreIsWorse},
     nullptr,
     nullptr},
}};

double not_negative(const JsonFields& fields, const char* key) {
  double value = fields.number(key);
  if (value < 0) fail(ErrorKind::refused, "{}: {} must not be negative", fields.where(), key);
  return value;
}

JsonFields section_of(const Json& report, const char* key, const std::string& where) {
  return {JsonFields(report, where).raw(key), fmt::format("{}: {}", where, key)};
}

std::optional<double> figure_from(const Json& report, const FigureSource& source,
                                  const std::string& where) {
  if (source.key == nullptr || !report.contains(source.section)) return std::nullopt;
  if (report.at(source.section).is_null()) {
    // No stream: all weights stay, and a pass reads nothing.
    return source.info.unit == FigureUnit::bytes ? std::optional(0.0) : std::nullopt;
  }
  JsonFields section = section_of(report, source.section, where);
  if (!section.has(source.key)) return std::nullopt;
  if (source.info.unit == FigureUnit::bytes)
    return static_cast<double>(report_bytes(section, source.key));
  return not_negative(section, source.key);
}

std::optional<double>& at(ReportData& data, Figure figure) {
  return data.figures[static_cast<size_t>(figure)];
}

void compute_figures(const Json& report, const std::string& where, ReportData& data) {
  for (size_t i = 0; i < kFigures; ++i) data.figures[i] = figure_from(report, kSources[i], where);
  // A load may leave weights on disk, to be read later: only the sum says what was read.
  if (data.figure(Figure::bytes_read) && JsonFields(report, where).has("stream")) {
    JsonFields stream = section_of(report, "stream", where);
    double& sum = *at(data, Figure::bytes_read);
    sum += static_cast<double>(report_bytes(stream, "bytes_read"));
    if (sum > 0x1p63)
      fail(ErrorKind::refused, "{}: bytes_read is more than 63 bits hold", stream.where());
  }
  if (!data.quantized.empty())
    at(data, Figure::worst_quantization_error) = data.quantized.front().relative_rms_error;
}

std::vector<QuantizedTensor> quantized_from(const JsonFields& load) {
  std::vector<QuantizedTensor> quantized;
  for (const Json& item : report_list(load, "tensors")) {
    JsonFields tensor(item, load.where() + ": tensors");
    std::string name = tensor.string("name");
    if (!tensor.has("relative_rms_error")) continue;
    quantized.push_back({std::move(name), tensor.string("stored"), tensor.string("kept"),
                         not_negative(tensor, "relative_rms_error"),
                         not_negative(tensor, "max_error")});
  }
  std::ranges::stable_sort(quantized, std::greater{}, &QuantizedTensor::relative_rms_error);
  return quantized;
}

std::vector<UnitStalls> units_from(const Json& report, const std::string& where) {
  std::vector<UnitStalls> units;
  if (!JsonFields(report, where).has("stream")) return units;
  JsonFields stream = section_of(report, "stream", where);
  if (!stream.has("units")) return units;
  for (const Json& item : report_list(stream, "units")) {
    JsonFields unit(item, stream.where() + ": units");
    JsonFields stalls(unit.raw("stalls"), unit.where() + ": stalls");
    auto seconds = [&](const char* key) {
      return report_seconds(stalls.raw(key), 0, stalls.where());
    };
    units.push_back({unit.string("name"), report_bytes(unit, "bytes"), seconds("disk"),
                     seconds("compute"), seconds("copy")});
  }
  return units;
}

bool is_byte_count(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= uint64_t{INT64_MAX};
  return value.is_number_integer() && value.get<int64_t>() >= 0;
}

std::vector<DiskSample> disk_from(const Json& report, const std::string& where) {
  std::vector<DiskSample> samples;
  if (!JsonFields(report, where).has("disk")) return samples;
  JsonFields disk = section_of(report, "disk", where);
  const std::string what = disk.where() + ": samples";
  DiskSample last;
  for (const Json& item : report_list(disk, "samples")) {
    if (!item.is_array() || item.size() != 2 || !is_byte_count(item[1]))
      fail(ErrorKind::refused, "{}: every entry must be [seconds, bytes]", what);
    DiskSample sample{report_seconds(item[0], last.seconds, what), item[1].get<uint64_t>()};
    if (sample.bytes < last.bytes)
      fail(ErrorKind::refused, "{}: the bytes read become less at {} s", what, sample.seconds);
    last = sample;
    samples.push_back(last);
  }
  return samples;
}

// The ledger is quiet once everything is in place, so the end of a run shows elsewhere.
double end_of(const ReportData& data, const Json& timings, const std::string& where) {
  double end = 0;
  if (!data.memory.timeline.empty()) end = data.memory.timeline.back().seconds;
  if (!data.disk.empty()) end = std::max(end, data.disk.back().seconds);
  if (data.memory.phases.empty()) return end;
  double last_phase = data.memory.phases.back().seconds;
  JsonFields fields(timings, where + ": timings");
  double after = 0;
  for (const char* key : {"prefill_seconds", "decode_seconds"})
    if (fields.has(key)) after += report_seconds(fields.raw(key), 0, fields.where());
  return std::max(end, last_phase + after);
}

}  // namespace

const FigureInfo& figure_info(Figure figure) { return kSources[static_cast<size_t>(figure)].info; }

std::string figure_text(Figure figure, double value) {
  switch (figure_info(figure).unit) {
    case FigureUnit::bytes:
      return format_size(static_cast<uint64_t>(value));
    case FigureUnit::seconds:
      return fmt::format("{:.3f} s", value);
    case FigureUnit::bytes_per_second:
      return fmt::format("{:.3g} GB/s", value / 1e9);
    case FigureUnit::tokens_per_second:
      return fmt::format("{:.1f} tokens/s", value);
    case FigureUnit::ratio:
      return fmt::format("{:.4f}", value);
  }
  return {};
}

ReportData report_data(const Json& report, const std::string& where) {
  JsonFields fields(report, where);
  ReportData data;
  data.verb = fields.string("verb");
  data.model = fields.string("model");
  data.architecture = fields.string_or("architecture", "");
  data.quantization = fields.string("quantization");
  JsonFields load = section_of(report, "load", where);
  data.reader = load.string("reader");
  data.quantized = quantized_from(load);
  compute_figures(report, where, data);
  data.units = units_from(report, where);
  data.disk = disk_from(report, where);
  data.memory = memory_report_from_json(fields.raw("memory"), where + ": memory");
  data.end = end_of(data, fields.raw("timings"), where);
  return data;
}

}  // namespace sluice::cli
