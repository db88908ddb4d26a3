// A model's vocabulary: token strings and ids, both ways, in about 15 bytes a token beside the
// strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/text/string_list.h"

namespace sluice {

class Vocabulary {
 public:
  enum class Repeats : uint8_t { refused, last_counts };  // of a token

  // tokens[i] has the id ids[i], which is not negative. Throws Error(refused), beginning with
  // `where`, when a token is not UTF-8, a token or an id comes twice, or an id is too large for so
  // few tokens. If repeated tokens are allowed, find() returns the largest id.
  Vocabulary(const StringList& tokens, const std::vector<int32_t>& ids, std::string_view where,
             Repeats repeats = Repeats::refused);

  int32_t end_id() const { return static_cast<int32_t>(by_id_.size()); }  // largest id + 1
  int32_t size() const { return size_; }                                  // number of tokens
  bool has(int32_t id) const { return id >= 0 && id < end_id() && known_[static_cast<size_t>(id)]; }
  std::string_view token(int32_t id) const { return by_id_[static_cast<size_t>(id)]; }  // has(id)
  std::optional<int32_t> find(std::string_view token) const;

 private:
  // Returns where `token` is in slots_, or the empty slot where it would be.
  size_t slot_of(std::string_view token) const;

  StringList by_id_;  // an empty string for an id that no token has
  std::vector<bool> known_;
  std::vector<int32_t> slots_;  // hash table of ids, open addressing; -1: empty
  int32_t size_ = 0;
};

}  // namespace sluice
