#include "src/text/decoder.h"

#include <utility>

#include "src/text/byte_alphabet.h"
#include "src/text/component.h"

namespace sluice {
namespace {

using Steps = std::vector<Decoder::Step>;

void load_any(const Json& config, Steps& steps);

void load_sequence(const JsonFields& config, Steps& steps) {
  for (const Json& member : array_field(config, "decoders")) load_any(member, steps);
}

void load_byte_level(const JsonFields&, Steps& steps) { steps.push_back(ByteLevelBytes{}); }

// Joins all tokens into one: what bytes() does for every decoder.
void load_fuse(const JsonFields&, Steps&) {}

constexpr ComponentType<Decoder::Step> kTypes[] = {
    {"Sequence", load_sequence},
    {"ByteLevel", load_byte_level},
    {"Fuse", load_fuse},
};

void load_any(const Json& config, Steps& steps) {
  load_component<Decoder::Step>(config, "decoder", kTypes, steps);
}

void apply(const JoinWithSpaces&, bool first, std::string& bytes) {
  if (!first) bytes.insert(bytes.begin(), ' ');
}

void apply(const ByteLevelBytes&, bool, std::string& bytes) {
  std::string decoded;
  append_bytes_of_characters(bytes, decoded);
  bytes = std::move(decoded);
}

}  // namespace

Decoder Decoder::load(const Json& config) {
  Decoder decoder;
  if (config.is_null()) decoder.steps_.push_back(JoinWithSpaces{});
  load_any(config, decoder.steps_);
  return decoder;
}

std::string Decoder::bytes(std::string_view token, bool first) const {
  std::string bytes(token);
  for (const Step& step : steps_) {
    std::visit([&](const auto& s) { apply(s, first, bytes); }, step);
  }
  return bytes;
}

}  // namespace sluice
