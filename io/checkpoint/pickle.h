// Python pickles, protocols 0 to 5, as data. Nothing is executed: a call remains a callable with
// its arguments, and only callables that the reader names are accepted.
// https://github.com/python/cpython/blob/main/Lib/pickletools.py
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"

namespace sluice::io {

struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,      // `number`
    big_integer,  // does not fit 64 bits
    real,         // whose value no reader needs
    text,         // or bytes
    global,       // `number`: index of the accepted callable
    tuple,
    list,
    dict,  // or an OrderedDict; keys and values in turns
    set,
    call,        // the callable, then its arguments
    persistent,  // its id
  };
  Kind kind = Kind::none;
  int64_t number = 0;  // else the place of what it consists of
};

// A pickle that ends before its STOP: more of it may follow where it came from.
struct PickleEndsEarly : Error {
  explicit PickleEndsEarly(const std::string& where)
      : Error(ErrorKind::refused, where + ": the pickle ends early") {}
};

class Pickle {
 public:
  // Reads the pickle that `text` begins with; `text` outlives this. `globals` are the callables and
  // types that are accepted ("torch.Size"), beside collections.OrderedDict; another one is refused
  // by its name. Memory is bounded by the length of `text`, whatever its memo multiplies: what is
  // named twice is there once. Throws Error(refused) that begins with `where`, or PickleEndsEarly.
  Pickle(std::string_view text, std::span<const std::string_view> globals,
         const std::string& where);

  const PickleValue& top() const { return top_; }
  size_t bytes() const { return bytes_; }  // of the pickle, its STOP included
  // The parts of a value of kind tuple, list, dict, set, call or persistent.
  std::span<const PickleValue> items(const PickleValue& value) const {
    return containers_[static_cast<size_t>(value.number)];
  }
  std::string_view text(const PickleValue& value) const {
    return texts_[static_cast<size_t>(value.number)];
  }
  const std::vector<PickleValue>& persistent() const { return persistent_; }  // all of them

 private:
  friend class PickleMachine;
  PickleValue top_;
  size_t bytes_ = 0;
  std::vector<std::vector<PickleValue>> containers_;
  std::vector<std::string_view> texts_;
  std::vector<PickleValue> persistent_;
};

}  // namespace sluice::io
