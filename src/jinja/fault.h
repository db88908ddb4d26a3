// Faults of a template, or of its input.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace sluice::jinja {

enum class FaultKind : uint8_t {
  syntax,     // the template cannot be parsed
  undefined,  // something is used that is not there
  value,      // an operation that values of these types, or these values, do not have
  security,   // what a template may not reach
  raised,     // the template's own raise_exception()
  limit,      // it takes more than a template may
};

// A fault on its way to the template, which adds the place.
class Fault : public std::runtime_error {
 public:
  Fault(FaultKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

template <class... Args>
[[noreturn]] void refuse(FaultKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Fault(kind, fmt::format(format, std::forward<Args>(args)...));
}

// The user's error: "TEMPLATE, line N: what is wrong".
class TemplateError : public Error {
 public:
  TemplateError(FaultKind kind, const std::string& name, int line, const std::string& message)
      : Error(ErrorKind::refused, fmt::format("{}, line {}: {}", name, line, message)),
        kind_(kind),
        line_(line),
        message_(message) {}
  FaultKind fault() const { return kind_; }
  int line() const { return line_; }
  const std::string& message() const { return message_; }  // without the place; any text

 private:
  FaultKind kind_;
  int line_;
  std::string message_;
};

}  // namespace sluice::jinja
