// Who may ask: keys, and pages of other origins.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/serve/service.h"

namespace sluice {

// What a request says of itself.
struct Requester {
  std::string_view host = {};           // as it calls this server
  std::string_view origin = {};         // of the page that asks; empty: no page does
  std::string_view authorization = {};  // OpenAI's clients: "Bearer KEY"
  std::string_view api_key = {};        // Anthropic's: x-api-key
};

class Access {
 public:
  // Without a key nobody needs one. `origins`: pages of other origins that may ask, "*": all.
  Access(std::string key, std::vector<std::string> origins)
      : key_(std::move(key)), origins_(std::move(origins)) {}

  // Refusal(401) without the key, Refusal(403) for a page that may not ask.
  void check(const Route& route, const Requester& who) const;
  // Lines of the answer's head that let a page read it.
  std::string cors_lines(std::string_view origin) const;

 private:
  bool allows(std::string_view origin) const;

  std::string key_;
  std::vector<std::string> origins_;
};

}  // namespace sluice
