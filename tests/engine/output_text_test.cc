#include "src/engine/output_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/random.h"

namespace sluice {
namespace {

std::string random_text(test::Random& random, int64_t longest) {
  std::string text;
  for (int64_t n = random.between(1, longest); n > 0; --n)
    text += static_cast<char>('a' + random.between(0, 1));
  return text;
}

// Returns how many of the last bytes may begin a stop string.
size_t might_begin(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& s : stops)
    for (size_t n = 1; n < s.size() && n <= text.size(); ++n)
      if (text.ends_with(s.substr(0, n))) longest = std::max(longest, n);
  return longest;
}

// Few letters, so that stop strings often begin and seldom end.
TEST(StopStrings, ShowAllThatCannotBeginOne) {
  test::Random random("stop strings");
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (int64_t n = random.between(0, 3); n > 0; --n) stops.push_back(random_text(random, 8));
    StopStrings strings(stops);
    std::string text, shown;
    while (text.size() < 60 && !strings.stopped()) {
      std::string more = random.between(0, 9) == 0 ? "" : random_text(random, 5);
      text += more;
      shown += strings.add(more, false);
      size_t cut = std::string::npos;
      for (const std::string& s : stops) cut = std::min(cut, text.find(s));
      ASSERT_EQ(strings.stopped(), cut != std::string::npos);
      ASSERT_EQ(shown,
                text.substr(0, strings.stopped() ? cut : text.size() - might_begin(text, stops)));
    }
    if (strings.stopped()) {
      EXPECT_NE(std::ranges::find(stops, strings.stop()), stops.end());
      EXPECT_TRUE(text.substr(shown.size()).starts_with(strings.stop()));
      continue;
    }
    shown += strings.add("", true);
    EXPECT_EQ(shown, text);
  }
}

// Each byte could begin it: without a memory of what matched, it would be looked at anew each time.
TEST(StopStrings, ALongOneTakesLinearTime) {
  constexpr size_t kLength = 1 << 20;
  std::string stop(kLength, 'a');
  stop += 'b';
  StopStrings strings({stop});
  std::string shown;
  for (size_t i = 0; i < 2 * kLength / 16; ++i) shown += strings.add(std::string(16, 'a'), false);
  EXPECT_EQ(shown.size(), kLength);
  EXPECT_EQ(strings.add("b", false), "");
  EXPECT_TRUE(strings.stopped());
}

}  // namespace
}  // namespace sluice
