#include "src/models/decoder_spec.h"

#include <fmt/format.h>

namespace sluice {

namespace {

void put_number(std::string& name, std::string_view placeholder, int64_t number) {
  if (const size_t at = name.find(placeholder); at != std::string::npos)
    name.replace(at, placeholder.size(), fmt::format("{}", number));
}

}  // namespace

std::string name_at(const std::string& name, ModulePlace place) {
  std::string there = name;
  put_number(there, "{}", place.layer);
  if (place.expert) put_number(there, "{e}", *place.expert);
  return there;
}

int64_t DecoderSpec::usable_positions() const {
  int64_t usable = max_positions;
  for (const RopeConfig& rope : ropes) usable = std::max(usable, rope.usable_positions());
  return usable;
}

Share DecoderSpec::angle_columns(size_t rope) const {
  Share columns;
  for (size_t i = 0; i < rope; ++i) columns.begin += ropes[i].dim / 2;
  columns.count = ropes[rope].dim / 2;
  return columns;
}

int64_t DecoderSpec::angle_columns() const {
  int64_t columns = 0;
  for (const RopeConfig& rope : ropes) columns += rope.dim / 2;
  return columns;
}

void replace_prefix(DecoderSpec& spec, std::string_view from, std::string_view to) {
  each<std::string>(spec, [&](std::string& name) {
    if (!name.empty() && name.starts_with(from)) name.replace(0, from.size(), to);
  });
}

}  // namespace sluice
