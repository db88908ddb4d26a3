#include "src/text/decoder.h"

#include <algorithm>
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

void load_fuse(const JsonFields&, Steps& steps) { steps.push_back(Fuse{}); }

void load_byte_fallback(const JsonFields&, Steps& steps) { steps.push_back(ByteFallback{}); }

void load_replace(const JsonFields& config, Steps& steps) {
  const JsonFields pattern(config.raw("pattern"), config.where() + ": pattern");
  ReplaceText replace{pattern.string("String"), config.string("content")};
  if (replace.text.empty()) fail(ErrorKind::refused, "{}: String is empty", pattern.where());
  steps.push_back(std::move(replace));
}

void load_strip(const JsonFields& config, Steps& steps) {
  if (config.integer("stop", 0, INT32_MAX) != 0)
    fail(ErrorKind::refused, "{}: Strip with a stop is not supported", config.where());
  const bool fused = std::ranges::any_of(
      steps, [](const Decoder::Step& step) { return std::holds_alternative<Fuse>(step); });
  StripStart strip{config.string("content"), config.integer("start", 0, INT32_MAX), fused};
  if (strip.text.empty()) fail(ErrorKind::refused, "{}: content is empty", config.where());
  steps.push_back(std::move(strip));
}

constexpr ComponentType<Decoder::Step> kTypes[] = {
    {"Sequence", load_sequence},
    {"ByteLevel", load_byte_level},
    {"ByteFallback", load_byte_fallback},
    {"Fuse", load_fuse},
    {"Replace", load_replace},
    {"Strip", load_strip},
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

// bytes() of all tokens, one after another, are the text: nothing is left to do.
void apply(const Fuse&, bool, std::string&) {}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void apply(const ByteFallback&, bool, std::string& bytes) {
  if (bytes.size() != 6 || !bytes.starts_with("<0x") || bytes[5] != '>') return;
  const int high = hex_digit(bytes[3]), low = hex_digit(bytes[4]);
  if (high >= 0 && low >= 0) bytes.assign(1, static_cast<char>(high * 16 + low));
}

void apply(const ReplaceText& replace, bool, std::string& bytes) {
  for (size_t at = bytes.find(replace.text); at != std::string::npos;) {
    bytes.replace(at, replace.text.size(), replace.by);
    at = bytes.find(replace.text, at + replace.by.size());
  }
}

void apply(const StripStart& strip, bool first, std::string& bytes) {
  if (strip.whole_text && !first) return;
  size_t at = 0;
  for (int64_t i = 0; i < strip.most && bytes.compare(at, strip.text.size(), strip.text) == 0; ++i)
    at += strip.text.size();
  bytes.erase(0, at);
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
