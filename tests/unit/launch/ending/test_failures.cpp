#include <gtest/gtest.h>

#include "launch/ending/failures.h"

namespace tarantella::launch {
namespace {

using Kind = Report::Kind;

TEST(Failures, AreTheSameExceptForRanksAndAddresses) {
  Failures failures;
  failures.add({Kind::kFailed, 0, 1, "ValueError: rank 0 at 0x7f3a", ""});
  failures.add({Kind::kFailed, 1, 1, "ValueError: rank 1 at 0x55d0", ""});
  failures.add({Kind::kFailed, 2, 1, "KeyError: 7", ""});
  failures.add({Kind::kFailed, 3, 1, "KeyError: 8", ""});
  failures.add({Kind::kLost, 4, 86, "PeerLostError", ""});
  EXPECT_TRUE(failures.same_error(0, 1));
  EXPECT_FALSE(failures.same_error(2, 3));
  EXPECT_FALSE(failures.same_error(0, 4));
  EXPECT_EQ(failures.others_with_same_error(1), 1);
  EXPECT_EQ(failures.others_with_same_error(2), 0);
  EXPECT_EQ(failures.others_with_same_error(4), 0);
  ASSERT_NE(failures.find(4, Kind::kLost), nullptr);
  EXPECT_EQ(failures.find(4, Kind::kFailed), nullptr);
}

TEST(Failures, AreComparedAtAnyLength) {
  std::string spaces;
  for (int pair = 0; pair < 16 * 1024; ++pair) spaces += "_ ";
  const std::string digits(32 * 1024, 'a');
  const auto same = [](const std::string& one, const std::string& other) {
    Failures failures;
    failures.add({Kind::kFailed, 0, 1, one, ""});
    failures.add({Kind::kFailed, 1, 1, other, ""});
    return failures.same_error(0, 1);
  };
  EXPECT_TRUE(same("digest 0x" + digits, "digest 0x" + digits + "f"));
  EXPECT_FALSE(same("digest " + digits, "digest " + digits + "f"));
  EXPECT_TRUE(same("rank" + spaces + "1", "rank" + spaces + "22"));
  EXPECT_FALSE(same("rank" + spaces + "x", "rank" + spaces + "y"));
}

TEST(Failures, DifferByAnyNumberExceptThoseOfRanksAndProcesses) {
  const auto same = [](const std::string& one, const std::string& other) {
    Failures failures;
    failures.add({Kind::kFailed, 0, 1, one, ""});
    failures.add({Kind::kFailed, 1, 1, other, ""});
    return failures.same_error(0, 1);
  };
  EXPECT_TRUE(same("pid=12, device: 0, thread_3", "pid=9, device: 15, thread_0"));
  EXPECT_TRUE(same("rank 0", "rank 1"));
  EXPECT_TRUE(same("rank rank 0 0x1F.", "rank rank 1 0xab."));
  EXPECT_FALSE(same("rank 0 row 1", "rank 0 row 2"));
  EXPECT_FALSE(same("ranks 1", "ranks 2"));
  EXPECT_FALSE(same("0x", ""));
  EXPECT_FALSE(same("rank", "ran"));
}

}  // namespace
}  // namespace tarantella::launch
