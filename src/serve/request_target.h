// The target of an HTTP request's line.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Its path, decoded: "/v1/models/a%2Fb?x" and "http://host/v1/models/a%2Fb" are "/v1/models/a/b"
// (RFC 9112, 3.2; RFC 3986, 2.1), and so are these with / at the end, as base URLs of clients often
// have it. A path with a bad escape stays as it is.
std::string path_of(std::string_view target);
// Returns what is behind the target's "?", as it is.
std::string query_of(std::string_view target);

}  // namespace sluice
