// Text that grows while a template is rendered.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "src/jinja/meter.h"

namespace sluice::jinja {

class Buffer {
 public:
  explicit Buffer(Meter& meter) : charge_(meter) {}

  void add(std::string_view text) {
    meter().text_steps(text.size());
    if (text_.size() + text.size() > held_) hold(text_.size() + text.size());
    text_ += text;
  }
  void add(char c) { add(std::string_view(&c, 1)); }
  void repeat(std::string_view text, uint64_t count);
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }
  Meter& meter() const { return charge_.meter(); }

 private:
  [[noreturn]] void too_long() const;
  void hold(size_t size);

  std::string text_;
  size_t held_ = 0;  // bytes that are charged
  Charge charge_;
};

}  // namespace sluice::jinja
