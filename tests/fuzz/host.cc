// A Host field: a name, or none; names are what rules can be compared with.
#include <algorithm>

#include "src/serve/access.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(host) {
  const std::string_view host = test::text_of(data, size);
  static const Access access({.hosts = {"a.example"}, .address = "127.0.0.1"});
  const std::optional<std::string> name = host_name(host);
  try {
    access.check_host(host);
    check(name.has_value(), "what is no host is refused");
  } catch (const Refusal& refusal) {
    check(refusal.status == (name ? 403 : 400), "a name is allowed, or not");
  }
  if (!name) return 0;
  const auto good = [](char c) { return c > ' ' && c < 0x7F && !(c >= 'A' && c <= 'Z'); };
  check(std::ranges::all_of(*name, good), "a name is printable and in lower case");
  return 0;
}
