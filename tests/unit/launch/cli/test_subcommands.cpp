#include <gtest/gtest.h>

#include "launch/cli/subcommands.h"

namespace tarantella::launch {
namespace {

TEST(Subcommands, AreCalledByTheFirstWord) {
  ASSERT_NE(subcommand_of({"verify", "-n", "2"}), nullptr);
  EXPECT_STREQ(subcommand_of({"verify"})->module, "tarantella.verify");
  EXPECT_STREQ(subcommand_of({"scaling", "-n", "1,2"})->module, "tarantella.scaling");
  ASSERT_NE(subcommand_of({"help"}), nullptr);
  EXPECT_EQ(subcommand_of({"help"})->module, nullptr);
}

TEST(Subcommands, OtherWordsStartAJob) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {}, {"model.py"}, {"help", "x"}, {"--", "verify"}, {"-n", "2", "verify"}, {"verify.py"}}) {
    EXPECT_EQ(subcommand_of(arguments), nullptr);
  }
}

}  // namespace
}  // namespace tarantella::launch
