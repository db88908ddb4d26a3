// Who may ask: keys, names of this server, and pages of other origins.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/serve/service.h"

namespace sluice {

// Returns the name or address in a Host field or an origin, in lower case, without port, brackets
// and the dot at its end. nullopt: there is none (RFC 9110, 7.2).
std::optional<std::string> host_name(std::string_view host);
// Returns whether a server at this address is reached from its own machine only.
bool is_loopback(std::string_view address);

// Fields of a request that decide whether it is answered.
struct Requester {
  std::string_view host = {};           // as it calls this server
  std::string_view origin = {};         // of the page that asks; empty: no page does
  std::string_view authorization = {};  // OpenAI's clients: "Bearer KEY"
  std::string_view api_key = {};        // Anthropic's: x-api-key
};

struct AccessRules {
  std::string key = {};                   // empty: nobody needs one
  std::vector<std::string> origins = {};  // pages of other origins that may ask, "*": all
  std::vector<std::string> hosts = {};    // further names of this server, "*": all
  std::string address = {};               // that the server listens at
};

class Access {
 public:
  explicit Access(AccessRules rules);

  // Refusal(400) for a Host that is none. Without a key a server that only its own machine can
  // reach answers only where it is called by an address of this machine, by localhost or by a name
  // that an option gave, else Refusal(403): a page of another site, whose name was made to point
  // here after it was loaded, has its own name as Host and Origin. `host`: empty: there is none.
  void check_host(std::string_view host) const;
  // Refusal(401) without the key, Refusal(403) for a page that may not ask.
  void check(const Route& route, const Requester& who) const;
  // Lines of the answer's head that let a page read it.
  std::string cors_lines(std::string_view origin) const;

 private:
  bool allows(std::string_view origin) const;

  std::string key_;
  std::vector<std::string> origins_;
  std::vector<std::string> hosts_;
  bool guards_hosts_ = false;
};

}  // namespace sluice
