#include <gtest/gtest.h>

#include "launch/nearest.h"

namespace tarantella::launch {
namespace {

TEST(Nearest, FindsAPrefixOrTheWordWithTheFewestEdits) {
  const std::vector<std::string> known{"--no-gpu", "--log-level", "--log-on-all-devices"};
  EXPECT_EQ(nearest("--no-cpu", known), "--no-gpu");
  EXPECT_EQ(nearest("--log", known), "--log-level");
  EXPECT_EQ(nearest("--log-on", known), "--log-on-all-devices");
  EXPECT_EQ(nearest("--hostfile", known), "");
}

}  // namespace
}  // namespace tarantella::launch
