// The embedded web page: what is served is what lies in src/serve/page, and it needs nothing else.
#include "src/serve/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::set<std::string> matches(std::string_view text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::cregex_iterator i(text.data(), text.data() + text.size(), regex), end; i != end; ++i)
    found.insert((*i)[1].str());
  return found;
}

TEST(Page, FilesAreThoseOfTheSource) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(test::source_dir() / "src/serve/page")) {
    const std::string name = entry.path().filename().string();
    if (!std::set<fs::path>{".css", ".html", ".js", ".svg"}.contains(entry.path().extension()))
      continue;
    names.insert(name);
    const PageFile file = find_page_file(name == "page.html" ? "/" : "/page/" + name);
    ASSERT_FALSE(file.content_type.empty()) << name;
    EXPECT_TRUE(file.bytes == test::read_file(entry.path())) << name << " differs";
  }
  EXPECT_EQ(names.size() + 1, embedded_page().size());
  const PageFile api = find_page_file("/openapi.json");
  EXPECT_EQ(api.content_type, "application/json");
  EXPECT_TRUE(api.bytes == test::read_file(test::source_dir() / "src/serve/openapi.json"));
}

TEST(Page, PathsThatAreNoFiles) {
  for (const char* path : {"", "/page", "/page/", "/page/none.js", "/page//page.js", "/page.js",
                           "/page/../page.h", "/page/page.html/", "//"}) {
    EXPECT_TRUE(find_page_file(path).content_type.empty()) << path;
  }
}

TEST(Page, ContentTypesAndTags) {
  EXPECT_EQ(find_page_file("/").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(find_page_file("/page/page.js").content_type, "text/javascript; charset=utf-8");
  std::set<std::string_view> tags;
  for (const EmbeddedFile& file : embedded_page()) {
    EXPECT_THAT(std::string(file.etag), testing::MatchesRegex("\"[0-9a-f]{16}\"")) << file.name;
    tags.insert(file.etag);
  }
  EXPECT_EQ(tags.size(), embedded_page().size());
}

// A browser under the policy would refuse the rest: here it shows before one is asked.
TEST(Page, FilesNameOnlyEachOtherAndHoldNoInlineScriptOrStyle) {
  for (const EmbeddedFile& file : embedded_page()) {
    const std::string bytes(file.bytes);
    for (const char* foreign : {"//cdn", "@import", "url(", "eval(", "innerHTML",
                                "insertAdjacentHTML", "document.write", "new Function"}) {
      EXPECT_THAT(bytes, Not(HasSubstr(foreign))) << file.name;
    }
    for (const std::string& host : matches(bytes, R"(https?://([\w.-]+))"))
      EXPECT_EQ(host, "www.w3.org") << file.name;  // names of XML, which nobody fetches
    for (const std::string& name : matches(bytes, R"(from '([^']*)')"))
      EXPECT_FALSE(find_page_file("/page" + name.substr(1)).content_type.empty()) << name;
  }
  const std::string html(find_page_file("/").bytes);
  for (const std::string& path : matches(html, R"re((?:src|href)="([^"]*)")re"))
    EXPECT_FALSE(find_page_file("/" + path).content_type.empty()) << path;
  EXPECT_THAT(matches(html, R"((<script(?![^>]*src=)|<style| style=| on[a-z]+=))"),
              testing::IsEmpty());
}

TEST(Page, PolicyAllowsTheServerAlone) {
  std::string_view policy = kPageHeaders.substr(0, kPageHeaders.find("\r\n"));
  EXPECT_THAT(std::string(policy), HasSubstr("default-src 'none'"));
  for (const char* hole : {"unsafe", "data:", "blob:", "http", "*"})
    EXPECT_THAT(std::string(policy), Not(HasSubstr(hole)));
  EXPECT_TRUE(kPageHeaders.ends_with("\r\n"));
}

}  // namespace
}  // namespace sluice
