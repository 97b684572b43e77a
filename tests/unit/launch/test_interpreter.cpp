#include <gtest/gtest.h>

#include "launch/interpreter.h"

namespace tarantella::launch {
namespace {

using Words = std::vector<std::string>;

TEST(Interpreter, FindsTheScriptBehindOptions) {
  for (const auto& [words, index] :
       std::vector<std::pair<Words, size_t>>{{{"-u", "a.py", "-m"}, 1},
                                             {{"-uOO", "-W", "error", "-Xdev", "-X", "utf8", "a.py"}, 6},
                                             {{"-bWignore", "a.py"}, 1}}) {
    EXPECT_EQ(script_behind_options(words).value(), index) << words[0];
  }
}

TEST(Interpreter, FindsNoScriptInAModuleAStringOrStdin) {
  for (const Words& words :
       std::vector<Words>{{"-m", "x"}, {"-mx"}, {"-um", "x", "-y"}, {"-c", "-"}, {"-"}, {"-u", "-"}}) {
    EXPECT_EQ(script_behind_options(words).value(), std::nullopt) << words[0];
  }
}

TEST(Interpreter, RefusesInvalidOptionsOfPython) {
  const auto mistake = [](const Words& words) { return script_behind_options(words).status().message(); };
  EXPECT_EQ(mistake({"-u", "-m"}), "option '-m' needs a value");
  EXPECT_EQ(mistake({"-X"}), "option '-X' needs a value");
  EXPECT_EQ(mistake({"-u"}), "no script given after the options of Python");
  EXPECT_EQ(mistake({"-uy", "a.py"}),
            "cannot read script '-uy': it is neither a file nor an option of Python such as -m, -c or -u");
  EXPECT_NE(mistake({"--version"}).find("cannot read script '--version'"), std::string::npos);
}

}  // namespace
}  // namespace tarantella::launch
