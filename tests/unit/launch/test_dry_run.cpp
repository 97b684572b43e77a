#include <gtest/gtest.h>

#include "launch/dry_run.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

TEST(DryRun, ShowsCoresAsRanges) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(DryRun, QuotesWordsForAShell) {
  EXPECT_EQ(shell_quoted({"python3", "--x=1", "a b", "", "it's", "$HOME"}),
            "python3 --x=1 'a b' '' 'it'\\''s' '$HOME'");
}

}  // namespace
}  // namespace tarantella::launch
