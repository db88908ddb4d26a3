// The differences of a model's weights, as a source has them (SourceFacts), from those of the hub:
// orders of rows and columns, and values.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "src/models/decoder_spec.h"

namespace sluice {

// The order of rows, or columns, that the source has in another one.
struct SourceOrder {
  enum class Kind : uint8_t {
    same,
    pairs,   // of heads of `block` rows: the two of a rotary pair, of `of` rows, are neighbours
    tiles,   // of heads of `block` rows: those of `of` key heads go by their place among these
    turned,  // of heads of `block` rows: each is a matrix of `of` rows whose columns they are
    halves   // of heads of `block` rows: neighbours are from the halves of `of` rows
  };
  Kind kind = Kind::same;
  int64_t block = 0;
  int64_t of = 0;
  int64_t heads_each = 0;  // tiles: heads of a key head

  // The source's row that is the hub's `row`; turned: the first one of its matrix.
  int64_t source_of(int64_t row) const;
  // Rows from `row` on whose sources are at equal steps.
  int64_t run_from(int64_t row) const;
  int64_t step_at(int64_t row) const;
  // The order that undoes it.
  SourceOrder inverse() const;
  bool operator==(const SourceOrder&) const = default;
};

// By the paths of the hub's parameters.
struct SourceDifferences {
  std::map<std::pair<std::string, size_t>, SourceOrder> orders;  // of their parts
  std::map<std::string, SourceOrder> columns;
  std::map<std::string, float> added;  // to the source's values
  std::set<std::string> logs;          // of the source's values, less their sign
};
// Compares the hub's model with the same of the facts of a source.
SourceDifferences source_differences(DecoderSpec& hub, DecoderSpec& source);

}  // namespace sluice
