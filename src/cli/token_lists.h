// A JSON file of lists of token ids, read as it comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/input_stream.h"

namespace sluice::cli {

// The lists, one after another in one array.
class TokenLists {
 public:
  size_t size() const { return ends_.size(); }
  std::span<const int32_t> operator[](size_t i) const {
    size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(ids_).subspan(begin, ends_[i] - begin);
  }
  size_t longest() const { return longest_; }
  // Bytes that the lists take, also while they grow by doubling.
  uint64_t bytes() const {
    return 2 * (ids_.size() * sizeof(int32_t) + ends_.size() * sizeof(size_t));
  }

  // To the list that comes next, which has open() ids and becomes one of these with close().
  void add(int32_t id) { ids_.push_back(id); }
  size_t open() const { return ids_.size() - (ends_.empty() ? 0 : ends_.back()); }
  void close();

 private:
  std::vector<int32_t> ids_;
  std::vector<size_t> ends_;
  size_t longest_ = 0;
};

// A list of lists of token ids, or one list. `name` is the option and its file; check(list) is
// asked about each list when it is complete, and hold(bytes) before more memory is taken.
// Error(usage) for what is no token id, an empty list, or one of more than `most` ids;
// Error(refused) for what is no JSON.
TokenLists read_token_lists(io::InputStream input, const std::string& name, size_t most,
                            const std::function<void(std::span<const int32_t>)>& check,
                            const std::function<void(uint64_t)>& hold);

}  // namespace sluice::cli
