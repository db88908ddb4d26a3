// The web page that the server shows at "/": its files are part of the program. They hold nothing
// secret, and are served without an API key.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

// A file of src/serve/page, as the build embeds it.
struct EmbeddedFile {
  std::string_view name;
  std::string_view etag;   // of the bytes, quotes included (RFC 9110)
  std::string_view bytes;  // UTF-8
};
std::span<const EmbeddedFile> embedded_page();

struct PageFile {
  std::string_view content_type;
  std::string_view etag;
  std::string_view bytes;
};

// Path of the description of the server's APIs (OpenAPI 3.1).
inline constexpr std::string_view kApiPath = "/openapi.json";

// The file at a path of the server: "/", kApiPath, or "/page/NAME". Without a content type there is
// none.
PageFile find_page_file(std::string_view path);

// Lines of the head of every response with a file of the page. The page loads only its own files,
// calls only its own server, makes no HTML of texts, and is shown in no other page's frame.
// Browsers keep the files and ask by their ETag whether they are current.
inline constexpr std::string_view kPageHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-cache\r\n";

}  // namespace sluice
