// The choice of experts that a cache keeps: a state machine without I/O, time and threads.
//
// The cache has equal slots, which all layers share. A step meets the layers in turn; in each it
// uses some experts. One that the cache does not have is read, and may take a slot from another.
//
// An expert's score is the number of its uses, of which one that is `half_life` steps old counts
// half (the spectrum of LRFU, Lee et al. 2001, doi:10.1109/TC.2001.970573). Steps are those of its
// own layer, so that a layer still to come has not lost what it will get back. An expert takes the
// slot of the one with the least score, where its own is larger: a prompt, which uses all experts
// about equally, moves nothing. Among equals the one goes whose layer comes last.
//
// The half life that hits most is another for each model and text. So ExpertPolicy also plays some
// half lives in shadow, without weights, and goes by the one that has hit most of late.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

struct PolicyShape {
  std::span<const uint32_t> layer_of = {};  // each expert's layer; layers are met in rising order
  uint32_t slots = 0;
};

struct PolicyRules {
  double half_life = 16;    // [steps]; 0: only the last use counts (LRU)
  bool admits_all = false;  // whatever its score, an expert that is read takes a slot
};

// The use of an expert by a step.
struct ExpertUse {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  uint32_t expert = 0;
  uint32_t slot = kNone;  // out: its slot, or kNone where it is read and not kept
  bool is_hit = false;    // out: the slot was its own before
};

class ScoredPolicy {
 public:
  static constexpr uint32_t kNone = ExpertUse::kNone;

  explicit ScoredPolicy(const PolicyShape& shape, const PolicyRules& rules = {});

  // A step uses these experts of one layer, each once. Their slots stay theirs until the next call.
  void use(std::span<ExpertUse> uses);

  uint32_t slot_of(uint32_t expert) const { return slot_of_[expert]; }
  // Goes by the scores of a policy that has seen the same uses; slots stay as they are.
  void score_as(const ScoredPolicy& other);

  // Bytes that it takes for each expert and each slot.
  static constexpr uint64_t kExpertBytes = 16, kSlotBytes = 24;

 private:
  struct Slot {
    double key = 0;  // of its expert
    uint32_t expert = kNone;
    uint32_t layer = 0;
    uint32_t pinned = 0;  // the last call that used it
  };
  static_assert(sizeof(Slot) <= kSlotBytes);

  void touch(uint32_t expert);
  std::optional<uint32_t> victim(double key, uint32_t layer) const;
  double aged(double key, uint32_t layer) const;

  PolicyRules rules_;
  std::vector<uint32_t> layer_of_;
  std::vector<uint32_t> slot_of_;
  // Log2 of each expert's score, were it now the layer's step 0. It changes by uses only.
  std::vector<double> keys_;
  std::vector<uint64_t> steps_;  // of each layer
  std::vector<Slot> slots_;
  uint32_t taken_ = 0;  // slots that ever had an expert
  uint32_t call_ = 0;
};

class ExpertPolicy {
 public:
  static constexpr uint32_t kNone = ExpertUse::kNone;

  explicit ExpertPolicy(const PolicyShape& shape);

  // Do the same as those of ScoredPolicy.
  void use(std::span<ExpertUse> uses);
  uint32_t slot_of(uint32_t expert) const { return real_.slot_of(expert); }

  static constexpr std::array kHalfLives{64.0, 1.0, 16.0};  // the first until there is more to say
  static constexpr uint64_t kExpertBytes = (1 + kHalfLives.size()) * ScoredPolicy::kExpertBytes;
  static constexpr uint64_t kSlotBytes = (1 + kHalfLives.size()) * ScoredPolicy::kSlotBytes;

 private:
  ScoredPolicy real_;
  std::vector<ScoredPolicy> shadows_;                // of kHalfLives
  std::array<double, kHalfLives.size()> hits_ = {};  // of these, of late
  double window_;                                    // calls that count as late
  size_t now_ = 0;                                   // the shadow that is followed
  std::vector<ExpertUse> scratch_;
};

}  // namespace sluice
