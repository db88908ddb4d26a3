#include "src/load/spill_header.h"

#include "io/json_header.h"
#include "src/base/error.h"
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
  return io::json_header(json, kSpillHeaderBytes);
}

std::optional<SpillHeader> read_spill_header(const std::filesystem::path& path) {
  try {
    io::Fd fd = io::open_regular(path);
    Json json = io::read_json_header(fd, path, kSpillHeaderBytes);
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
