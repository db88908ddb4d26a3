// Protocol Buffers' wire format: the fields of a message, one after another.
//   https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

struct ProtobufField {
  uint32_t number;
  bool is_text;           // a string, bytes or a message; else a number
  std::string_view text;  // a view of what the reader was made of
  uint64_t bits;          // an integer, or the bits of a float or double

  int64_t integer() const { return static_cast<int64_t>(bits); }  // int32 and bool, too
  float real() const;                                             // of a float
};

class ProtobufReader {
 public:
  // `where` names the file in errors; `bytes` must outlive this and its fields.
  ProtobufReader(std::string_view bytes, std::string where) : rest_(bytes), where_(where) {}

  // nullopt: there are no more. Throws Error(refused) for what is no message.
  std::optional<ProtobufField> next();

 private:
  uint64_t varint();
  std::string_view take(uint64_t bytes);
  [[noreturn]] void refuse(std::string_view what) const;

  std::string_view rest_;
  std::string where_;
};

}  // namespace sluice
