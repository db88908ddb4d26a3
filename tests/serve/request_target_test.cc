#include "src/serve/request_target.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(RequestTarget, PathsAreDecoded) {
  EXPECT_EQ(path_of("/health"), "/health");
  EXPECT_EQ(path_of("/health?a=/b%20"), "/health");
  EXPECT_EQ(path_of("/v1/models/org%2Fname%20x"), "/v1/models/org/name x");
  EXPECT_EQ(path_of("/%68ealth"), "/health");
  EXPECT_EQ(path_of("http://localhost:8000/v1/models?x"), "/v1/models");
  EXPECT_EQ(path_of("https://h"), "/");
  EXPECT_EQ(path_of("/v1/models/"), "/v1/models");
  EXPECT_EQ(path_of("http://h?x=/y"), "/");
  EXPECT_EQ(path_of(""), "");
  EXPECT_EQ(path_of("*"), "*");
}

TEST(RequestTarget, QueriesStayAsTheyAre) {
  EXPECT_EQ(query_of("/sleep?level=1&mode=a%20b#x?y"), "level=1&mode=a%20b");
  EXPECT_EQ(query_of("/sleep"), "");
  EXPECT_EQ(query_of("http://h?x=/y"), "x=/y");
  EXPECT_EQ(query_of(""), "");
}

TEST(RequestTarget, WhatIsNoEscapeStaysAsItIs) {
  for (const char* odd : {"/a%", "/a%2", "/a%2x", "/a%-1", "/a%+1"}) EXPECT_EQ(path_of(odd), odd);
  EXPECT_EQ(path_of("/a%zz?key=secret"), "/a%zz");
}

}  // namespace
}  // namespace sluice
