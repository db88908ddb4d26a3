#include "src/serve/page/page.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr std::pair<std::string_view, std::string_view> kContentTypes[] = {
    {".css", "text/css; charset=utf-8"},
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".json", "application/json"},
    {".svg", "image/svg+xml"},
};

std::string_view content_type(std::string_view name) {
  const auto* known =
      std::ranges::find_if(kContentTypes, [&](const auto& t) { return name.ends_with(t.first); });
  return known->second;  // every file's is there: tests/serve/page_test.cc
}

}  // namespace

PageFile find_page_file(std::string_view path) {
  constexpr std::string_view kFolder = "/page/";
  std::string_view name = path == "/" ? "page.html" : path == kApiPath ? kApiPath.substr(1) : "";
  if (path.starts_with(kFolder)) name = path.substr(kFolder.size());
  const std::span<const EmbeddedFile> files = embedded_page();
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  if (found == files.end()) return {};
  return {.content_type = content_type(found->name), .etag = found->etag, .bytes = found->bytes};
}

}  // namespace sluice
