#include <algorithm>
#include <cmath>

#include "src/jinja/characters.h"
#include "src/jinja/formatting.h"
#include "src/jinja/number_format.h"
#include "src/jinja/numbers.h"
#include "src/jinja/operators.h"
#include "src/jinja/show.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

class Percent {
 public:
  Percent(Meter& meter, std::string_view format, const Value& values)
      : meter_(meter), format_(format), values_(values), out_(meter) {}

  std::string run() {
    while (at_ < format_.size()) {
      const size_t sign = std::min(format_.find('%', at_), format_.size());
      if (sign > at_) out_.add(format_.substr(at_, sign - at_));
      at_ = sign + 1;
      if (sign < format_.size()) conversion();
    }
    const bool all = values_.is(Kind::tuple) ? used_ == values_.items().size() : used_ > 0;
    if (!all && !values_.is(Kind::dict) && !values_.is(Kind::list))
      refuse(FaultKind::value, "not all arguments converted during string formatting");
    return out_.take();
  }

 private:
  char here() const {
    if (at_ >= format_.size()) refuse(FaultKind::value, "incomplete format");
    return format_[at_];
  }

  const Value& argument() {
    if (named_ != nullptr) return *named_;
    if (values_.is(Kind::tuple)) {
      if (used_ < values_.items().size()) return values_.items()[used_++];
    } else if (used_++ == 0) {
      return values_;
    }
    refuse(FaultKind::value, "not enough arguments for format string");
  }

  int64_t number() {
    if (here() == '*') {
      ++at_;
      const Value& width = argument();
      if (!width.is_integer()) refuse(FaultKind::value, "* wants int");
      return width.integer();
    }
    int64_t value = 0;
    for (; here() >= '0' && here() <= '9'; ++at_) {
      value = value * 10 + (here() - '0');
      if (value > 1'000'000'000) refuse(FaultKind::limit, "the width of a format is too large");
    }
    return value;
  }

  void find_named() {
    named_ = nullptr;
    if (here() != '(') return;
    const size_t end = format_.find(')', at_);
    if (end == std::string_view::npos) refuse(FaultKind::value, "incomplete format key");
    if (!values_.is(Kind::dict)) refuse(FaultKind::value, "format requires a mapping");
    const std::string_view key = format_.substr(at_ + 1, end - at_ - 1);
    named_ = values_.dict().find(key);
    if (named_ == nullptr) refuse(FaultKind::value, "format: there is no '{}'", key);
    at_ = end + 1;
  }

  void conversion() {
    find_named();
    FormatSpec spec;
    bool left = false, zeros = false;
    for (; std::string_view("#0- +").find(here()) != std::string_view::npos; ++at_) {
      left |= here() == '-';
      zeros |= here() == '0';
      spec.alternate |= here() == '#';
      if (here() == '+' || (here() == ' ' && spec.sign != '+')) spec.sign = here();
    }
    spec.width = number();
    if (spec.width < 0) {
      left = true;
      spec.width = static_cast<int64_t>(0 - static_cast<uint64_t>(spec.width));
    }
    if (here() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number(), 0);
    }
    while (std::string_view("hlL").find(here()) != std::string_view::npos) ++at_;
    spec.type = here();
    ++at_;
    spec.align = left ? '<' : '>';
    if (spec.type == '%') return out_.add('%');
    if (zeros && !left &&
        std::string_view("diuoxXeEfFgG").find(spec.type) != std::string_view::npos) {
      spec.align = '=';
      spec.fill = "0";
    }
    pad(converted(spec), spec, '>', out_);
  }

  std::string converted(const FormatSpec& spec) {
    const Value& value = argument();
    switch (spec.type) {
      case 's':
        return cut(text_of(meter_, value), spec);
      case 'r':
      case 'a':
        return cut(repr(meter_, value), spec);
      case 'c':
        if (value.is(Kind::text)) return value.text();
        return integer_digits(whole(value, spec), spec);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer_digits(whole(value, spec), spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number())
          refuse(FaultKind::value, "must be real number, not {}", type_name(value));
        return real_digits(value.real(), spec);
      default:
        refuse(FaultKind::value, "unsupported format character '{}'", spec.type);
    }
  }

  static std::string cut(std::string text, const FormatSpec& spec) {
    if (spec.precision >= 0) text.resize(byte_of(text, static_cast<size_t>(spec.precision)));
    return text;
  }

  BigInteger whole(const Value& value, const FormatSpec& spec) {
    if (is_whole(value)) return whole_of(meter_, value);
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is(Kind::real) || !decimal)
      refuse(FaultKind::value, "%{} format: a number is required, not {}", spec.type,
             type_name(value));
    if (!std::isfinite(value.real()))
      refuse(FaultKind::value, "cannot convert {} to integer", show_real(value.real()));
    return BigInteger::of(value.real());
  }

  Meter& meter_;
  std::string_view format_;
  const Value& values_;
  Buffer out_;
  size_t at_ = 0;
  size_t used_ = 0;
  const Value* named_ = nullptr;
};

}  // namespace

Value percent_format(Meter& meter, const Value& format, const Value& values) {
  return make_text(meter, Percent(meter, format.text(), values).run(), format.text_object().markup);
}

}  // namespace sluice::jinja
