#include <gtest/gtest.h>

#include "launch/system/environment.h"

namespace tarantella::launch {
namespace {

TEST(Environment, ValuesHaveNoBlanksAroundThem) {
  EXPECT_EQ(stripped_value({{"X", "\t a b\n"}}, "X"), "a b");
  EXPECT_EQ(stripped_value({{"X", "  "}}, "X"), "");
  EXPECT_EQ(stripped_value({}, "X"), "");
}

TEST(Environment, ReadsSwitchesAsPythonDoes) {
  for (const char* value : {"", " ", "0", " 0 ", "\t0\n", "False", "no", " OFF"}) {
    EXPECT_FALSE(is_on({{"X", value}}, "X")) << value;
  }
  for (const char* value : {"1", " 1 ", "on", "TRUE", "yes", "0 0"}) {
    EXPECT_TRUE(is_on({{"X", value}}, "X")) << value;
  }
  EXPECT_FALSE(is_on({}, "X"));
}

TEST(Environment, AdditionsReplaceWhatTheUserHasSet) {
  const auto envp = to_envp({{"A", "old"}, {"B", "b=c"}}, {{"A", "new"}});
  EXPECT_EQ(envp, (std::vector<std::string>{"A=new", "B=b=c"}));
}

}  // namespace
}  // namespace tarantella::launch
