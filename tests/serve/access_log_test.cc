#include "src/serve/access_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "src/base/error.h"
#include "src/base/json.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

AccessEntry entry() {
  AccessEntry e{.request_id = "req_1", .method = "POST", .path = "/v1/completions", .status = 200};
  e.bytes = 123;
  return e;
}

TEST(AccessLog, ALineSaysWhatBecameOfARequest) {
  AccessEntry e = entry();
  EXPECT_EQ(access_line(e, e.began + 1500us, 1.25),
            R"({"time":"1970-01-01T00:00:01.250Z","request_id":"req_1","method":"POST",)"
            R"("path":"/v1/completions","status":200,"seconds":0.0015,"bytes":123})"
            "\n");
  e.tokens = {.prompt = 7, .cached = 4, .completion = 2};
  e.first_token = e.began + 250ms;
  e.failed = true;
  const Json line = Json::parse(access_line(e, e.began + 1s, 0));
  EXPECT_EQ(line.at("prompt_tokens"), 7);
  EXPECT_EQ(line.at("cached_tokens"), 4);
  EXPECT_EQ(line.at("completion_tokens"), 2);
  EXPECT_EQ(line.at("first_token_seconds"), 0.25);
  EXPECT_EQ(line.at("failed"), true);
}

TEST(AccessLog, WhatClientsSendCannotBreakALine) {
  AccessEntry e = entry();
  e.path = "/\"\n\x01\xFF" + std::string(100'000, 'x');
  e.method = std::string(100'000, 'M');
  const std::string line = access_line(e, e.began, 0);
  EXPECT_LT(line.size(), 2048u);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_TRUE(Json::accept(line));
}

TEST(AccessLog, LinesAreAddedToAFile) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "log").string();
  std::ofstream(path) << "before\n";
  {
    AccessLog log(path);
    log.add(entry());
    log.add(entry());
  }
  std::ifstream file(path);
  std::string line;
  int lines = 0;
  for (; std::getline(file, line); ++lines) EXPECT_EQ(lines == 0, line == "before") << line;
  EXPECT_EQ(lines, 3);
  EXPECT_THROW(AccessLog((dir.path() / "none/log").string()), Error);
}

}  // namespace
}  // namespace sluice
