#include "src/models/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/log.h"

namespace sluice {
namespace {

// mrope and xdrope give each of several axes its own positions, which agree where all is text.
constexpr std::array<std::pair<std::string_view, RopeKind>, 10> kKinds{
    {{"default", RopeKind::plain},
     {"mrope", RopeKind::plain},
     {"linear", RopeKind::linear},
     {"dynamic", RopeKind::dynamic},
     {"xdrope", RopeKind::dynamic},
     {"yarn", RopeKind::yarn},
     {"llama3", RopeKind::llama3},
     {"longrope", RopeKind::longrope},
     {"su", RopeKind::longrope},
     {"proportional", RopeKind::proportional}}};

constexpr const char* kPart = "partial_rotary_factor";

double positive(const JsonFields& fields, const char* key, double value) {
  if (!(value > 0))
    fail(ErrorKind::refused, "{}: {} is {}, but must be positive", fields.where(), key, value);
  return value;
}

// Two fields of config.json that say one thing: `used` counts.
void warn_if_different(const JsonFields& used, const char* key, const JsonFields& other,
                       const char* other_key) {
  if (!used.has(key) || !other.has(other_key)) return;
  const Json& value = used.raw(key);
  if (value == other.raw(other_key)) return;
  log::warning("{}: {} counts; {} of {} differs", used.where(), key, other_key, other.where());
}

RopeKind parse_kind(const JsonFields& scaling) {
  scaling.refuse_null({"rope_type"});
  warn_if_different(scaling, "rope_type", scaling, "type");
  std::string name = scaling.string_or("rope_type", scaling.string_or("type", "default"));
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  fail(ErrorKind::refused, "{}: unknown rope type \"{}\"", scaling.where(), io::printable(name));
}

std::vector<double> factor_list(const JsonFields& scaling, const char* key, int64_t size) {
  const Json& list = scaling.raw(key);
  std::vector<double> factors;
  if (list.is_array()) {
    for (const Json& v : list) {
      if (v.is_number() && v.get<double>() > 0 && std::isfinite(v.get<double>()))
        factors.push_back(v.get<double>());
    }
  }
  if (!list.is_array() || factors.size() != list.size() || std::ssize(factors) != size) {
    fail(ErrorKind::refused, "{}: {} must be a list of {} positive numbers", scaling.where(), key,
         size);
  }
  return factors;
}

double yarn_attention(const JsonFields& scaling, double factor) {
  double mscale = scaling.number_or("mscale", 0);
  double all_dim = scaling.number_or("mscale_all_dim", 0);
  if (mscale != 0 && all_dim != 0)
    return yarn_mscale(factor, mscale) / yarn_mscale(factor, all_dim);
  return yarn_mscale(factor, 1);
}

// The field outside of the ropes counts before that of one rope for all layers, and not at all
// beside ropes of `divided` layers, as in transformers.
int64_t original_positions(const JsonFields& s, const JsonFields& config, const RopeModel& model,
                           bool divided) {
  constexpr int64_t kMost = int64_t{1} << 31;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (divided) {
    warn_if_different(s, kOriginal, config, kOriginal);
    return s.integer_or(kOriginal, 1, kMost, model.max_positions);
  }
  warn_if_different(config, kOriginal, s, kOriginal);
  const int64_t absent = model.default_original > 0
                             ? model.default_original
                             : s.integer_or(kOriginal, 1, kMost, model.max_positions);
  return config.integer_or(kOriginal, 1, kMost, absent);
}

// `all`: the fields of all kinds of layers, which alone say whether yarn truncates.
void parse_scaling(const JsonFields& s, const JsonFields& all, RopeConfig& rope) {
  if (rope.kind == RopeKind::plain) return;
  bool implied = rope.kind == RopeKind::yarn || rope.kind == RopeKind::longrope;
  double ratio =
      static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_positions);
  if (rope.kind == RopeKind::proportional) {
    rope.factor = positive(s, "factor", s.number_or("factor", 1));
    return;
  }
  rope.factor = positive(s, "factor", implied ? s.number_or("factor", ratio) : s.number("factor"));
  if (rope.kind == RopeKind::yarn) {
    rope.beta_fast = positive(s, "beta_fast", s.number_or("beta_fast", 32));
    rope.beta_slow = positive(s, "beta_slow", s.number_or("beta_slow", 1));
    rope.truncate = all.boolean_or("truncate", true);
    rope.attention_factor = s.number_or("attention_factor", yarn_attention(s, rope.factor));
  }
  if (rope.kind == RopeKind::llama3) {
    rope.low_freq_factor = positive(s, "low_freq_factor", s.number("low_freq_factor"));
    rope.high_freq_factor = positive(s, "high_freq_factor", s.number("high_freq_factor"));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      fail(ErrorKind::refused, "{}: high_freq_factor must be above low_freq_factor", s.where());
    }
  }
  if (rope.kind == RopeKind::longrope) {
    rope.short_factor = factor_list(s, "short_factor", rope.dim / 2);
    rope.long_factor = factor_list(s, "long_factor", rope.dim / 2);
    double log_original =
        std::log(static_cast<double>(std::max<int64_t>(rope.original_positions, 2)));
    double implied_factor =
        rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / log_original);
    rope.attention_factor = s.number_or("attention_factor", implied_factor);
  }
}

// rope_scaling or rope_parameters; an empty object of `config` where there is neither.
JsonFields rope_fields(const JsonFields& config) {
  static const Json kNone = Json::object();
  auto given = [&](const char* key) { return config.has(key) && !config.raw(key).empty(); };
  const char* key = given("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!given(key)) return {kNone, config.where()};
  if (given("rope_scaling")) warn_if_different(config, key, config, "rope_parameters");
  return {config.raw(key), config.where() + ": " + key};
}

// Returns the fields of one kind of layers.
JsonFields fields_of_layers(const JsonFields& all, const char* layers) {
  static const Json kNone = Json::object();
  constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";
  const bool divided = all.has(kFull) || all.has(kSliding);
  if (divided && layers == nullptr)
    fail(ErrorKind::refused, "{}: a rope of its own for {} layers is not supported", all.where(),
         all.has(kFull) ? kFull : kSliding);
  if (layers == nullptr || (!divided && std::string_view(layers) == kFull)) return all;
  if (!all.has(layers)) return {kNone, all.where()};
  return {all.raw(layers), all.where() + ": " + layers};
}

// A part of each head in a family that rotates all of it: transformers refuses that with a scaling,
// and without one does not look.
void check_whole_head_turns(const JsonFields& scaling, const JsonFields& config, RopeKind kind) {
  const JsonFields& from = scaling.has(kPart) ? scaling : config;
  double part = from.number_or(kPart, 1);
  if (part == 1) return;
  if (kind != RopeKind::plain)
    fail(ErrorKind::refused, "{}: {} is {}, which is not supported", from.where(), kPart, part);
  log::warning("{}: {} is {}, but all of each head is rotated, as in transformers", from.where(),
               kPart, part);
}

// Sets the elements of a head that are rotated. Of an odd number, the last frequency's pair reaches
// one element further, as in transformers.
void rotate_part(const JsonFields& scaling, const JsonFields& config, const RopeModel& model,
                 RopeConfig& rope) {
  config.refuse_null({model.part_key});
  const JsonFields& from = scaling.has(kPart) ? scaling : config;
  const char* key = scaling.has(kPart) ? kPart : model.part_key;
  const double part = from.number_or(key, model.default_part);
  const auto dim = static_cast<int64_t>(static_cast<double>(model.head_dim) * part);
  const bool pairs = dim % 2 == 0 || rope.kind == RopeKind::plain ||
                     rope.kind == RopeKind::linear || rope.kind == RopeKind::llama3;
  if (!(part > 0) || part > 1 || dim < 2 || !pairs) {
    fail(ErrorKind::refused, "{}: {} is {}, of heads of {}: an even number must be rotated",
         from.where(), key, part, model.head_dim);
  }
  rope.base_dim = dim;
  rope.dim = dim + dim % 2;
}

// Sets the pairs that turn where the part is of the pairs, not of the elements.
void turn_part(const JsonFields& scaling, const JsonFields& config, const RopeModel& model,
               RopeConfig& rope) {
  const bool inner = scaling.has(kPart);
  const JsonFields& from = inner ? scaling : config;
  const char* key = inner || model.part_key == nullptr ? kPart : model.part_key;
  const double part = from.number_or(key, model.default_part);
  if (!(part > 0) || part > 1)
    fail(ErrorKind::refused, "{}: {} is {}, but must be above 0 and at most 1", from.where(), key,
         part);
  rope.turning = static_cast<int64_t>(part * static_cast<double>(rope.dim)) / 2;
}

void scale_yarn(const RopeConfig& rope, std::vector<double>& inverse) {
  auto correction_dim = [&](double rotations) {
    return static_cast<double>(rope.dim) *
           std::log(static_cast<double>(rope.original_positions) /
                    (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction_dim(rope.beta_fast);
  double high = correction_dim(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inverse.size(); ++i) {
    double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / rope.factor * ramp + inverse[i] * (1 - ramp);
  }
}

void scale_llama3(const RopeConfig& rope, std::vector<double>& inverse) {
  double original = static_cast<double>(rope.original_positions);
  for (double& f : inverse) {
    double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > original / rope.low_freq_factor) {
      f /= rope.factor;
    } else if (wavelength >= original / rope.high_freq_factor) {
      double smooth = (original / wavelength - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
      f = (1 - smooth) * f / rope.factor + smooth * f;
    }
  }
}

double position_factor(const RopeConfig& rope, int64_t position) {
  if (rope.position_beta == 0) return 1;
  const int64_t steps = (position + rope.position_offset) / rope.original_positions;
  return 1 + rope.position_beta * std::log(1 + static_cast<double>(steps));
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Each number may be fine and what follows from them not: it overflows float32,
// or is divided by nothing.
void check_angles(const RopeConfig& rope, const std::string& where) {
  constexpr int64_t kLongest = int64_t{1} << 31;
  auto finite = [](float f) { return std::isfinite(f); };
  bool good = finite(static_cast<float>(rope.attention_factor));
  for (int64_t length : {int64_t{1}, kLongest})
    good = good && std::ranges::all_of(rope_frequencies(rope, length), finite);
  if (!good)
    fail(ErrorKind::refused, "{}: the rotary embeddings that it describes are not finite", where);
}

bool has_rope_fields(const JsonFields& config) {
  return config.has("rope_parameters") ||
         (config.has("rope_scaling") && !config.raw("rope_scaling").empty());
}

double rope_number(const JsonFields& config, const char* key, double absent) {
  return rope_fields(config).number_or(key, absent);
}

RopeConfig parse_rope(const JsonFields& config, const RopeModel& model) {
  constexpr const char* kTheta = "rope_theta";
  RopeConfig rope;
  rope.dim = model.head_dim;
  rope.max_positions = model.max_positions;
  rope.original_positions = model.max_positions;
  const JsonFields all = rope_fields(config), s = fields_of_layers(all, model.layers);
  s.refuse_null({kTheta});
  const bool outer = model.theta_key != nullptr && !s.has(kTheta);
  if (model.theta_key != nullptr) {
    config.refuse_null({model.theta_key});
    warn_if_different(s, kTheta, config, model.theta_key);
  }
  const JsonFields& with_theta = outer ? config : s;
  const char* theta_key = outer ? model.theta_key : kTheta;
  rope.theta =
      positive(with_theta, theta_key, with_theta.number_or(theta_key, model.default_theta));
  rope.kind = parse_kind(s);
  if (rope.kind == RopeKind::proportional) {
    turn_part(s, config, model, rope);
  } else if (model.part_key == nullptr) {
    check_whole_head_turns(s, config, rope.kind);
  } else {
    rotate_part(s, config, model, rope);
  }
  const bool divided = model.layers != nullptr && all.has(model.layers);
  rope.original_positions = original_positions(s, config, model, divided);
  parse_scaling(s, all, rope);
  check_angles(rope, config.where());
  return rope;
}

int64_t RopeConfig::usable_positions() const {
  double extended = 0;
  if (kind == RopeKind::linear || kind == RopeKind::dynamic)
    extended = factor * static_cast<double>(max_positions);
  if (kind == RopeKind::yarn) extended = factor * static_cast<double>(original_positions);
  return std::max(max_positions, static_cast<int64_t>(std::min(extended, 0x1p31)));
}

std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t length) {
  double theta = rope.theta;
  double dim = static_cast<double>(rope.base_dim > 0 ? rope.base_dim : rope.dim);
  if (rope.kind == RopeKind::dynamic && length > rope.max_positions) {
    double stretch =
        rope.factor * static_cast<double>(length) / static_cast<double>(rope.max_positions);
    theta *= std::pow(stretch - (rope.factor - 1), dim / (dim - 2));
  }
  std::vector<double> inverse(static_cast<size_t>(rope.dim / 2));
  for (size_t i = 0; i < inverse.size(); ++i)
    inverse[i] = std::pow(theta, -2 * static_cast<double>(i) / dim);
  if (rope.kind == RopeKind::linear || rope.kind == RopeKind::proportional) {
    for (double& f : inverse) f /= rope.factor;
  }
  if (rope.kind == RopeKind::proportional)
    std::fill(inverse.begin() + rope.turning, inverse.end(), 0.0);
  if (rope.kind == RopeKind::yarn) scale_yarn(rope, inverse);
  if (rope.kind == RopeKind::llama3) scale_llama3(rope, inverse);
  if (rope.kind == RopeKind::longrope) {
    const std::vector<double>& factors =
        length > rope.original_positions ? rope.long_factor : rope.short_factor;
    for (size_t i = 0; i < inverse.size(); ++i) inverse[i] /= factors[i];
  }
  for (size_t i = 0; i < rope.factors.size(); ++i) inverse[i] /= rope.factors[i];
  return {inverse.begin(), inverse.end()};
}

void rope_table(const RopeConfig& rope, RopeRows rows, Tensor cos, Tensor sin) {
  std::vector<float> inverse = rope_frequencies(rope, rows.length);
  check(cos.cols == std::ssize(inverse) && sin.rows == cos.rows, "rope table has the wrong shape");
  for (int64_t r = 0; r < cos.rows; ++r) {
    const int64_t at = rope.first_position + rows.first_position + r;
    const float position = static_cast<float>(at - at % rope.window);
    const double factor = rope.attention_factor * position_factor(rope, at);
    for (int64_t i = 0; i < cos.cols; ++i) {
      double angle =
          position * inverse[static_cast<size_t>(i)];  // rounded to float32, as the reference does
      angle = static_cast<float>(angle);
      cos.row<float>(r)[i] = static_cast<float>(std::cos(angle) * factor);
      sin.row<float>(r)[i] = static_cast<float>(std::sin(rope.reversed ? -angle : angle) * factor);
    }
  }
}

void rope_tables(std::span<const RopeConfig> ropes, RopeRows rows, Tensor cos, Tensor sin) {
  int64_t begin = 0;
  for (const RopeConfig& rope : ropes) {
    const int64_t half = rope.dim / 2;
    rope_table(rope, rows, cos.columns(begin, half), sin.columns(begin, half));
    begin += half;
  }
}

}  // namespace sluice
