// The number of sequences to run at once: each takes room for its keys and values, which weights
// could have, and shares the cost of a pass over the weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "src/base/json_writer.h"
#include "src/engine/planner.h"
#include "src/engine/request.h"

namespace sluice {

// Sums of the largest of many values, in little memory: what is nearly as large is counted
// together.
class LargestValues {
 public:
  void add(int64_t value, int64_t times);
  // Sum of the `count` largest: exact, or up to 1/8 more for some of them.
  int64_t sum(int64_t count) const;

 private:
  struct Similar {
    int64_t times = 0;
    int64_t sum = 0;
    int64_t largest = 0;
  };
  std::map<int64_t, Similar> all_;
};

// The most memory that requests need, whichever of them run together.
class BatchNeeds {
 public:
  // `prompt_tokens`: tokens of the longest of `prompts`. `held_bytes`: bytes of all of them.
  void add(const Request& request, int64_t prompt_tokens, int64_t prompts, uint64_t held_bytes,
           const Planner& planner);
  // A request's parsing takes so much, whatever else is held; and an index.
  void add_parse(uint64_t bytes) { parse_bytes_ = std::max(parse_bytes_, bytes); }
  void set_index(uint64_t bytes) { index_bytes_ = bytes; }

  int64_t sequences() const { return sequences_; }
  int64_t widest() const { return widest_; }  // a request's beams run together
  // Slots for the longest `sequences` of them, and steps that could take all their prompts, as they
  // come together.
  RunShape shape(const Planner& planner, int64_t sequences) const;
  // Bytes held for the requests of `sequences` sequences, and for some that wait.
  uint64_t held_bytes(int64_t sequences) const;
  // Bytes held, being parsed, and being written.
  uint64_t request_bytes(int64_t sequences) const {
    return parse_bytes_ + held_bytes(sequences) + 4 * JsonWriter::kPiece;
  }

 private:
  LargestValues slots_, prompts_, held_;
  uint64_t most_held_ = 0;
  uint64_t parse_bytes_ = 0;
  uint64_t index_bytes_ = 0;
  uint64_t sampling_bytes_ = 0;
  int64_t sequences_ = 0;
  int64_t widest_ = 1;
};

struct BatchWidth {
  int64_t sequences = 0;
  RunShape shape;                // to place the model with
  double tokens_per_second = 0;  // predicted, of all sequences together
};

// The purpose of more sequences.
enum class BatchAim : uint8_t {
  speed,       // of all together: no more than make it faster
  no_waiting,  // as many as do not make it slower: somebody waits for each
};

// At most `most`, with the most tokens a second predicted. Every request must have room beside the
// others in the worst case. Error(no_fit) where not even one sequence has.
BatchWidth choose_batch_width(Planner& planner, const BatchNeeds& needs, int64_t most,
                              BatchAim aim);

}  // namespace sluice
