#include "src/text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <string>

#include "src/base/error.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

// Ids are dense in practice; some vocabularies leave holes. The table by id must stay in proportion
// to the file.
constexpr int64_t kIdsPerToken = 16;
constexpr int64_t kIdsForFree = 65536;

// Texts are cut and tokens joined at the borders of characters. No JSON holds other tokens, but
// formats of bytes do.
void check_characters(const StringList& tokens, std::string_view where) {
  std::string valid;
  for (size_t i = 0; i < tokens.size(); ++i) {
    Utf8Decoder decoder;
    valid.clear();
    decoder.append(tokens[i], valid);
    if (decoder.replaced() || decoder.incomplete())
      fail(ErrorKind::refused, "{}: token {} ({:?}) is not UTF-8", where, i, tokens[i]);
  }
}

}  // namespace

Vocabulary::Vocabulary(const StringList& tokens, const std::vector<int32_t>& ids,
                       std::string_view where, Repeats repeats)
    : size_(static_cast<int32_t>(tokens.size())) {
  check_characters(tokens, where);
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
  if (!order.empty()) {
    int64_t last = ids[order.back()];
    if (last >= kIdsForFree + kIdsPerToken * size_) {
      fail(ErrorKind::refused, "{}: token '{}' has id {}, which is absurd for {} tokens", where,
           tokens[order.back()], last, size_);
    }
    by_id_.reserve(static_cast<size_t>(last) + 1, tokens.bytes());
    known_.assign(static_cast<size_t>(last) + 1, false);
  }
  slots_.assign(std::bit_ceil(tokens.size() + tokens.size() / 2 + 1), -1);
  for (uint32_t i : order) {
    size_t id = static_cast<size_t>(ids[i]);
    if (id < by_id_.size()) {
      fail(ErrorKind::refused, "{}: tokens '{}' and '{}' both have id {}", where, by_id_[id],
           tokens[i], id);
    }
    size_t slot = slot_of(tokens[i]);
    if (slots_[slot] >= 0 && repeats == Repeats::refused) {
      fail(ErrorKind::refused, "{}: token '{}' is listed twice, with ids {} and {}", where,
           tokens[i], slots_[slot], id);
    }
    while (by_id_.size() < id) by_id_.push_back("");
    by_id_.push_back(tokens[i]);
    known_[id] = true;
    slots_[slot] = ids[i];
  }
}

size_t Vocabulary::slot_of(std::string_view token) const {
  size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>()(token) & mask;
  while (slots_[slot] >= 0 && this->token(slots_[slot]) != token) slot = (slot + 1) & mask;
  return slot;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  int32_t id = slots_[slot_of(token)];
  if (id < 0) return std::nullopt;
  return id;
}

}  // namespace sluice
