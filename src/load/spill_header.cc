#include "src/load/spill_header.h"

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/plan/spill_layout.h"

namespace sluice {
namespace {

constexpr const char* kFormat = "sluice.spill/1";

}  // namespace

std::string spill_header_text(const SpillHeader& h) {
  Json json{{"format", kFormat},
            {"model", h.model},
            {"scheme", h.scheme},
            {"fingerprint", h.fingerprint},
            {"tensors", h.tensors},
            {"index_offset", h.index_offset},
            {"index_bytes", h.index_bytes},
            {"index_checksum", h.index_checksum}};
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  check(text.size() <= kSpillHeaderBytes, "a spill header has a bounded path");
  text.resize(kSpillHeaderBytes, '\0');
  return text;
}

std::optional<SpillHeader> read_spill_header(const std::filesystem::path& path) {
  try {
    io::Fd fd = io::open_regular(path);
    std::string text(kSpillHeaderBytes, '\0');
    io::read_exactly(fd, path, 0, text);
    text.resize(std::min(text.find('\0'), text.size()));
    Json json = parse_json(text, path.string());
    JsonFields fields(json, path.string());
    if (fields.string("format") != kFormat) return std::nullopt;
    auto count = [&](const char* key) {
      return static_cast<uint64_t>(fields.integer(key, 0, INT64_MAX));
    };
    return SpillHeader{fields.string("model"),         fields.string("scheme"),
                       fields.string("fingerprint"),   count("tensors"),
                       count("index_offset"),          count("index_bytes"),
                       fields.string("index_checksum")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace sluice
