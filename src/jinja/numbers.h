// Texts as numbers, as int() and float() read them, and integers as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/jinja/big_integer.h"
#include "src/jinja/value.h"

namespace sluice::jinja {

std::optional<BigInteger> read_integer(std::string_view text, int base);
std::optional<double> read_real(std::string_view text);

Value integer_value(Meter& meter, const BigInteger& integer);
bool is_whole(const Value& value);                      // an integer of any size
BigInteger whole_of(Meter& meter, const Value& value);  // of such a value
// Below, equal or above zero, of numbers that are not NaN.
int order_numbers(const Value& a, const Value& b);

}  // namespace sluice::jinja
