#include "src/text/protobuf.h"

#include <bit>
#include <cstring>

#include "src/base/error.h"

namespace sluice {

float ProtobufField::real() const { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

void ProtobufReader::refuse(std::string_view what) const {
  fail(ErrorKind::refused, "{}: is damaged: {}", where_, what);
}

// Seven bits a byte, the lowest first.
uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1)[0]);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number has more than 64 bits");
}

std::string_view ProtobufReader::take(uint64_t bytes) {
  if (bytes > rest_.size()) refuse("it ends within a field");
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::optional<ProtobufField> ProtobufReader::next() {
  if (rest_.empty()) return std::nullopt;
  const uint64_t tag = varint();
  ProtobufField field{
      .number = static_cast<uint32_t>(tag >> 3), .is_text = false, .text = {}, .bits = 0};
  if (tag >> 32 != 0 || field.number == 0) refuse("a field has no number");
  const auto fixed = [&](uint64_t bytes) {
    std::memcpy(&field.bits, take(bytes).data(), bytes);  // little-endian, as we are
  };
  switch (tag & 7) {
    case 0:
      field.bits = varint();
      break;
    case 1:
      fixed(8);
      break;
    case 2:
      field.is_text = true;
      field.text = take(varint());
      break;
    case 5:
      fixed(4);
      break;
    default:
      refuse("a field has a type that is not known");
  }
  return field;
}

}  // namespace sluice
