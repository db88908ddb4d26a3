// The text files of a directory of the hub that say what the metadata of a GGUF file does.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/gguf/gguf.h"
#include "src/models/rope.h"

namespace sluice {
namespace {

// Factors as rope_scaling has them: as "llama3" where they are its, else as a list.
Json scaling_of(const std::vector<double>& factors, const JsonFields& made, double theta) {
  constexpr float kNear = 1e-4F;
  const RopeConfig given{.theta = theta, .dim = 2 * std::ssize(factors), .factors = factors};
  const RopeConfig bands{.kind = RopeKind::llama3,
                         .theta = theta,
                         .dim = given.dim,
                         .factor = std::ranges::max(factors),
                         .original_positions = 8192};  // converters write factors of this one
  const bool is_of_bands =
      std::ranges::equal(rope_frequencies(bands, 1), rope_frequencies(given, 1),
                         [](float a, float b) { return std::abs(a / b - 1) < kNear; });
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (is_of_bands)
    return {{"rope_type", "llama3"},
            {"factor", bands.factor},
            {"low_freq_factor", bands.low_freq_factor},
            {"high_freq_factor", bands.high_freq_factor},
            {kOriginal, bands.original_positions}};
  return {
      {"rope_type", "longrope"}, {"factor", 1.0},
      {"attention_factor", 1.0}, {kOriginal, made.integer("max_position_embeddings", 1, INT32_MAX)},
      {"short_factor", factors}, {"long_factor", factors}};
}

// The share of pairs that turn, where the factors of the others stop them; nullopt: there are other
// factors.
std::optional<double> turning_share(const std::vector<double>& factors) {
  constexpr double kStops = 1e9;
  const auto stopped = std::ranges::find_if(factors, [](double f) { return f != 1; });
  if (!std::all_of(stopped, factors.end(), [](double f) { return f > kStops; }))
    return std::nullopt;
  return static_cast<double>(stopped - factors.begin()) / static_cast<double>(factors.size());
}

// Puts factors of frequencies where the class has scalings of its rope.
void set_factors(const SourceFacts& facts, const std::string& where, Json& config) {
  const std::vector<double>& factors = facts.rope_factors;
  if (std::ranges::all_of(factors, [](double f) { return f == 1; })) return;
  const Json made = config;
  const bool has_parameters = config.contains("rope_parameters");
  Json& rope = config[has_parameters ? "rope_parameters" : "rope_scaling"];
  const std::optional<double> share = turning_share(factors);
  if (facts.factored_rope > 0 && share && rope.contains("full_attention")) {
    rope["full_attention"].update(
        {{"rope_type", "proportional"}, {"partial_rotary_factor", *share}});
    return;
  }
  if (facts.factored_rope > 0 || made.contains("rope_scaling") || rope.contains("full_attention"))
    fail(ErrorKind::refused,
         "{}: has factors of rotary frequencies that its config.json cannot say", where);
  const JsonFields fields(has_parameters ? rope : made, where);
  const double theta = fields.number_or("rope_theta", 10000);
  rope.update(scaling_of(factors, JsonFields(made, where), theta));
}

}  // namespace

std::vector<MadeFile> gguf_made_files(Json config, const SourceFacts& facts,
                                      const io::GgufHeader& header) {
  const std::string where = io::printable(header.file.path.string());
  set_factors(facts, where, config);
  Json generation = Json::object();
  if (config.contains("eos_token_id")) generation["eos_token_id"] = config["eos_token_id"];
  const JsonFields fields(header.values, where);
  for (const auto& [key, own] : {std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                 {"tokenizer.ggml.padding_token_id", "pad_token_id"}}) {
    if (!fields.has(key)) continue;
    const int64_t id = fields.integer(key, INT32_MIN, UINT32_MAX);
    if (id < 0 || id > kMaxTokenId) continue;
    generation[own] = id;
    config[own] = id;
  }
  std::vector<MadeFile> files{{"config.json", config.dump(2) + "\n"},
                              {"generation_config.json", generation.dump(2) + "\n"}};
  std::ranges::move(gguf_tokenizer_files(header), std::back_inserter(files));
  return files;
}

}  // namespace sluice
