#include "src/cli/report/report_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/memory/report.h"

namespace sluice::cli {
namespace {

std::string size_text(const JsonFields& fields, const char* key) {
  return format_size(report_bytes(fields, key));
}

int64_t count(const JsonFields& fields, const char* key) {
  return fields.integer(key, 0, INT64_MAX);
}

// Also what is not finite, a rate over no time say, which JSON writes as null.
double number(const JsonFields& fields, const char* key) {
  const Json& value = fields.raw(key);
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) fail(ErrorKind::refused, "{}: {} must be a number", fields.where(), key);
  return value.get<double>();
}

std::string name(const JsonFields& fields, const char* key) {
  return io::printable(fields.string(key));
}

QuantizationErrors errors_of(const JsonFields& load) {
  QuantizationErrors errors;
  for (const Json& item : report_list(load, "tensors")) {
    JsonFields tensor(item, load.where() + ": tensors");
    if (tensor.has("relative_rms_error"))
      errors.add(tensor.string("name"), number(tensor, "relative_rms_error"),
                 number(tensor, "max_error"));
  }
  return errors;
}

std::string quantization_text(const QuantizationErrors& errors) {
  if (errors.tensors == 0) return {};
  return fmt::format(
      "\nquantized  {} tensors; largest relative RMS error {:.4f} ({}), largest error {:.3g}",
      errors.tensors, errors.worst_rms, io::printable(errors.worst_name), errors.worst_error);
}

std::string load_text(const JsonFields& load) {
  return fmt::format(
      "loaded     {} as {} of weights in {:.2f} s: {:.2f} GiB/s, read amplification {:.3f} ({})",
      size_text(load, "bytes_read"), size_text(load, "weights_bytes"), number(load, "seconds"),
      number(load, "bytes_per_second") / static_cast<double>(GiB),
      number(load, "read_amplification"), name(load, "reader"));
}

std::string stream_text(const JsonFields& stream) {
  std::string text =
      fmt::format("\nstreamed   {} for each pass, {} in all; compute waited {:.2f} s for the disk",
                  size_text(stream, "bytes_per_sweep"), size_text(stream, "bytes_read"),
                  number(stream, "wait_seconds"));
  if (stream.has("experts") && !stream.raw("experts").is_null()) {
    const JsonFields experts(stream.raw("experts"), stream.where() + ": experts");
    text +=
        fmt::format("\nexperts    {:.1f} % of {} uses were in the cache of {} experts, {} in all",
                    100 * number(experts, "hit_rate"), count(experts, "uses"),
                    count(experts, "slots"), size_text(experts, "bytes_from_cache"));
  }
  if (stream.integer_or("host_bytes_per_sweep", 0, INT64_MAX, 0) > 0) {
    text += fmt::format("\nfrom host  {} for each pass, {} in all",
                        size_text(stream, "host_bytes_per_sweep"),
                        size_text(stream, "bytes_from_host"));
  }
  return text;
}

std::string spill_text(const JsonFields& spill) {
  const Json& copies = report_list(spill, "copies");
  if (copies.empty() || !copies.front().is_string())
    fail(ErrorKind::refused, "{}: copies must be a list of files", spill.where());
  return fmt::format("\nspill      {}: {} in {}", name(spill, "outcome"), size_text(spill, "bytes"),
                     io::printable(copies.front().get<std::string>()));
}

std::string kv_cache_text(const JsonFields& kv) {
  if (!kv.has("scales")) return {};
  bool checkpoint = kv.string("scales") == "checkpoint";
  return fmt::format("\nKV cache   {}, {}", name(kv, "dtype"),
                     checkpoint ? "scales from the checkpoint" : "a scale for each token and head");
}

std::string timings_text(const JsonFields& timings) {
  if (!timings.has("decode_tokens_per_second")) return {};
  std::string text = fmt::format(
      "\nprompt     {} tokens in {:.3f} s ({:.1f} tokens/s)"
      "\ngenerated  {} tokens, {:.1f} tokens/s after the first",
      count(timings, "prompt_tokens"), number(timings, "prefill_seconds"),
      number(timings, "prefill_tokens_per_second"), count(timings, "generated_tokens"),
      number(timings, "decode_tokens_per_second"));
  if (timings.integer_or("guessed_tokens", 0, INT64_MAX, 0) > 0) {
    text += fmt::format(" ({} passes: {} of {} guesses were right)", count(timings, "decode_steps"),
                        count(timings, "accepted_tokens"), count(timings, "guessed_tokens"));
  }
  return text;
}

}  // namespace

void QuantizationErrors::add(const std::string& name, double relative_rms, double error) {
  ++tensors;
  worst_error = std::max(worst_error, error);
  if (relative_rms < worst_rms) return;
  worst_rms = relative_rms;
  worst_name = name;
}

std::string summary_text(const Json& report, const std::string& where) {
  const JsonFields fields(report, where);
  const QuantizationErrors errors =
      errors_of(JsonFields(fields.raw("load"), fmt::format("{}: load", where)));
  return summary_text(report, errors,
                      memory_report_from_json(fields.raw("memory"), where + ": memory"), where);
}

std::string summary_text(const Json& sections, const QuantizationErrors& errors,
                         const MemoryReport& memory, const std::string& where) {
  JsonFields fields(sections, where);
  auto section = [&](const char* key) {
    return JsonFields(fields.raw(key), fmt::format("{}: {}", where, key));
  };
  std::string text = load_text(section("load")) + quantization_text(errors);
  if (fields.has("stream")) text += stream_text(section("stream"));
  if (fields.has("spill")) text += spill_text(section("spill"));
  if (fields.has("kv_cache")) text += kv_cache_text(section("kv_cache"));
  text += timings_text(section("timings"));
  return text + "\n" + to_text(memory);
}

}  // namespace sluice::cli
