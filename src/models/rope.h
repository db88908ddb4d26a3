// Rotary position embeddings and their scalings, as Hugging Face's modeling_rope_utils computes
// them.
//   RoPE: arXiv:2104.09864; dynamic NTK: as transformers; YaRN: arXiv:2309.00071; llama3:
//   Llama 3.1's own; longrope: arXiv:2402.13753.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/base/tensor.h"

namespace sluice {

enum class RopeKind : uint8_t { plain, linear, dynamic, yarn, llama3, longrope, proportional };

struct RopeConfig {
  RopeKind kind = RopeKind::plain;
  double theta = 10000;
  int64_t dim = 0;  // rotated elements of a head, even
  // The elements that frequencies are made for: one less than dim where that was odd.
  int64_t base_dim = 0;  // 0: dim
  double factor = 1;
  int64_t first_position = 0;      // whose angles a sequence's first token has
  int64_t max_positions = 0;       // max_position_embeddings
  int64_t original_positions = 0;  // original_max_position_embeddings
  double attention_factor = 1;     // multiplies cos and sin
  double beta_fast = 32;           // yarn
  double beta_slow = 1;
  bool truncate = true;
  double low_freq_factor = 1;  // llama3
  double high_freq_factor = 4;
  std::vector<double> short_factor = {};  // longrope, dim / 2 each
  std::vector<double> long_factor = {};
  int64_t turning = 0;  // proportional: pairs that rotate, those of the highest frequencies
  // Heads rotated at position p are multiplied by 1 + beta log(1 + floor((p +
  // offset) / original_positions)) (Llama 4, for queries); 0: they are not.
  double position_beta = 0;
  int64_t position_offset = 0;
  // Rows of a window of so many tokens have the angles of its first one.
  int64_t window = 1;
  bool reversed = false;  // the rotation is undone
  // The source's own, dim / 2, by which the frequencies of whatever kind are
  // divided; empty: none.
  std::vector<double> factors = {};

  // Positions that the scaling is made for: max_positions, or what it extends them to.
  int64_t usable_positions() const;
  // Keys that were rotated by short_factor are computed again where the sequence has become longer
  // than original_positions (longrope of Phi-3).
  bool keys_follow = false;
  // The frequencies of a token may depend on how long its sequence is (dynamic, longrope).
  bool depends_on_length() const { return kind == RopeKind::dynamic || kind == RopeKind::longrope; }
  bool operator==(const RopeConfig&) const = default;
};

// Values of a model outside of its rope fields, and the keys that its family uses.
struct RopeModel {
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  double default_theta = 10000;
  const char* theta_key = "rope_theta";  // nullptr: only rope fields say it
  // The share of each head that is rotated, where a scaling has no partial_rotary_factor; nullptr:
  // the family rotates whole heads, whatever config.json says.
  const char* part_key = nullptr;
  double default_part = 1;
  // The default of a class that has original_max_position_embeddings outside of the rope fields,
  // where alone it counts; 0: other classes.
  int64_t default_original = 0;
  // The kind of layers, as in layer_types, whose rope is read: the rope fields under this name.
  // Fields that are not divided by kind are those of full_attention; other kinds have the default
  // rope. nullptr: all layers.
  const char* layers = nullptr;
};
// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5). Where several say one
// thing, what counts is what counts in transformers 5, with a warning if they differ. Throws
// Error(refused) that names the key.
RopeConfig parse_rope(const JsonFields& config, const RopeModel& model);
// Tells whether config.json has rope fields at all: without them some classes have a rope that is
// not the default one, which does not fill up what fields lack. (An empty rope_scaling is none, as
// in transformers; an empty rope_parameters is the default rope.)
bool has_rope_fields(const JsonFields& config);
// A rope field that only one family has; `absent` where it is missing.
double rope_number(const JsonFields& config, const char* key, double absent);
// YaRN's factor of cos and sin, and of the root of the softmax's scale
// (arXiv:2309.00071, 3.4).
double yarn_mscale(double factor, double mscale);
// Refuses angles that are not finite.
void check_angles(const RopeConfig& rope, const std::string& where);

// Inverse frequencies [dim / 2] for a sequence of `length` tokens.
std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t length);

// Positions of the rows whose cos and sin are wanted: row i is at first_position + i of a sequence
// that counts as `length` tokens long (the whole prompt for prompt tokens; for a generated token
// the length with it).
struct RopeRows {
  int64_t first_position = 0;
  int64_t length = 0;
};
// Fills cos and sin [rows, dim / 2].
void rope_table(const RopeConfig& rope, RopeRows rows, Tensor cos, Tensor sin);
// Fills the tables of several ropes, whose columns lie side by side.
void rope_tables(std::span<const RopeConfig> ropes, RopeRows rows, Tensor cos, Tensor sin);

}  // namespace sluice
