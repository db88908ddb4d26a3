// The beginnings of HTTP responses, as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/serve/refusal.h"

namespace sluice {

struct ResponseHead {
  int status = 200;
  std::string_view type = {};  // of the content; empty: there is none
  std::optional<uint64_t> content_size =
      {};  // bytes; none: in chunks, or until the connection ends
  bool chunked = false;
  bool keep_alive = true;       // the connection takes another request
  int retry_after = 0;          // seconds; 0: nothing is said
  std::string_view lines = {};  // further ones, each with its end
};

std::string response_head(const ResponseHead& head);
// Returns the fields with a request's id, as each API's clients look for it.
std::string request_id_lines(Dialect dialect, std::string_view id);

}  // namespace sluice
