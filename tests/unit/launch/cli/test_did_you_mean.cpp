#include <gtest/gtest.h>

#include "launch/cli/did_you_mean.h"

namespace tarantella::launch {
namespace {

TEST(DidYouMean, FindsAPrefixOrTheWordWithTheFewestEdits) {
  const std::vector<std::string> known{"--no-gpu", "--log-level", "--log-on-all-devices"};
  EXPECT_EQ(did_you_mean("--no-cpu", known), "--no-gpu");
  EXPECT_EQ(did_you_mean("--log", known), "--log-level");
  EXPECT_EQ(did_you_mean("--log-on", known), "--log-on-all-devices");
  EXPECT_EQ(did_you_mean("--hostfile", known), "");
}

}  // namespace
}  // namespace tarantella::launch
