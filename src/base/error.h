// The one exception type, and checks for our own bugs.
//
// Error: a fault that the user can meet (bad input, I/O, budget). It reaches the user as one
// sentence that says what is wrong, where, and what to do; `kind` becomes the process's exit
// status. Expected refusals ("does not fit") are optional/bool return values, not exceptions.
// check() is in src/base/check.h.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/check.h"

namespace sluice {

// Values are the process's exit statuses (docs/command-line.md).
enum class ErrorKind : uint8_t {
  runtime = 1,  // failed at run time: I/O, full disk, interrupted
  usage = 2,    // wrong command line or request
  refused = 3,  // the model or its files are refused
  no_fit = 4,   // does not fit the memory budget
};

inline constexpr size_t kMaxErrorBytes = 4096;

// `text` for a terminal: what names and values from files and arguments may hold to steer it, or to
// make the rest of a line read otherwise, becomes '?': control and format characters (escapes,
// right-to-left overrides), and bytes that are no UTF-8.
std::string lines_for_terminal(std::string_view text);
// Does the same as lines_for_terminal for a model's output: keeps tabs, and the joiners that
// scripts and emoji are written with.
std::string speech_for_terminal(std::string_view text);
// `text` as one line for a terminal; the middle of more than kMaxErrorBytes is left out.
std::string one_line(std::string_view text);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message)
      : std::runtime_error(one_line(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// The same, with the text of `errno_value` appended: "cannot open x: No such file or directory".
template <class... Args>
[[noreturn]] void fail_errno(int errno_value, fmt::format_string<Args...> format, Args&&... args);

// "No such file or directory" for ENOENT; thread-safe.
std::string errno_text(int errno_value);

template <class... Args>
void fail_errno(int errno_value, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::runtime,
              fmt::format("{}: {}", fmt::format(format, std::forward<Args>(args)...),
                          errno_text(errno_value)));
}

}  // namespace sluice
