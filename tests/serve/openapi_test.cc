// The document that the server gives of itself names the routes that it has, and no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

#include "src/base/json.h"
#include "src/serve/page/page.h"
#include "src/serve/service.h"

namespace sluice {
namespace {

Json paths() { return Json::parse(find_page_file(kApiPath).bytes).at("paths"); }

TEST(OpenApi, EachPathIsARouteOfItsMethod) {
  const Json described = paths();
  for (const auto& [path, methods] : described.items()) {
    const Route* route = find_route(path);
    ASSERT_NE(route, nullptr) << path;
    EXPECT_NE(route->endpoint, Endpoint::page) << path;
    ASSERT_EQ(methods.size(), 1) << path;
    std::string method = methods.begin().key();
    std::ranges::transform(method, method.begin(), [](unsigned char c) { return std::toupper(c); });
    EXPECT_EQ(method, route->method) << path;
  }
}

TEST(OpenApi, EachEndpointButThePageIsThere) {
  std::set<Endpoint> described;
  const Json all_paths = paths();
  for (const auto& [path, methods] : all_paths.items()) {
    const Route* route = find_route(path);
    if (route != nullptr) described.insert(route->endpoint);
  }
  const int all = static_cast<int>(Endpoint::page);  // the last one
  for (int i = 0; i < all; ++i)
    EXPECT_TRUE(described.contains(static_cast<Endpoint>(i))) << "endpoint " << i;
}

}  // namespace
}  // namespace sluice
