#include "src/engine/sampling_defaults.h"

#include <array>
#include <cstdint>

namespace sluice {
namespace {

struct Field {
  const char* key;
  double SamplingParams::* value;
};
constexpr std::array<Field, 5> kFields{
    {{"temperature", &SamplingParams::temperature},
     {"top_p", &SamplingParams::top_p},
     {"min_p", &SamplingParams::min_p},
     {"typical_p", &SamplingParams::typical_p},
     {"repetition_penalty", &SamplingParams::repetition_penalty}}};

}  // namespace

std::vector<SamplingDefault> take_sampling_defaults(
    const Json& json, const std::function<bool(const std::string&)>& given,
    SamplingParams& sampling) {
  const JsonFields config(json, "generation_config.json");
  std::vector<SamplingDefault> taken;
  const bool samples = config.boolean_or("do_sample", config.has("temperature"));
  if (!samples && !config.has("repetition_penalty")) return taken;
  for (const Field& f : kFields) {
    const bool penalty = f.value == &SamplingParams::repetition_penalty;
    if (given(f.key) || (!samples && !penalty)) continue;
    const bool temperature = f.value == &SamplingParams::temperature;
    const double standard = temperature ? 1.0 : sampling.*f.value;
    const double value = config.number_or(f.key, standard);
    if (value == sampling.*f.value) continue;
    sampling.*f.value = value;
    taken.push_back({f.key, value});
  }
  if (samples && !given("top_k") && config.has("top_k")) {
    sampling.top_k = config.integer("top_k", 0, INT32_MAX);
    taken.push_back({"top_k", static_cast<double>(sampling.top_k)});
  }
  return taken;
}

}  // namespace sluice
