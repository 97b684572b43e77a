#include <gtest/gtest.h>

#include "launch/cli/python_options.h"

namespace tarantella::launch {
namespace {

using Arguments = std::vector<std::string>;

TEST(PythonOptions, FindsTheScriptBehindOptions) {
  for (const auto& [arguments, index] :
       std::vector<std::pair<Arguments, size_t>>{{{"-u", "a.py", "-m"}, 1},
                                                 {{"-uOO", "-W", "error", "-Xdev", "-X", "utf8", "a.py"}, 6},
                                                 {{"-bWignore", "a.py"}, 1}}) {
    EXPECT_EQ(script_after_options(arguments).value(), index) << arguments[0];
  }
}

TEST(PythonOptions, FindsNoScriptInAModuleAStringOrStdin) {
  for (const Arguments& arguments :
       std::vector<Arguments>{{"-m", "x"}, {"-mx"}, {"-um", "x", "-y"}, {"-c", "-"}, {"-"}, {"-u", "-"}}) {
    EXPECT_EQ(script_after_options(arguments).value(), std::nullopt) << arguments[0];
  }
}

TEST(PythonOptions, RefusesInvalidOptionsOfPython) {
  const auto error_message = [](const Arguments& arguments) {
    return script_after_options(arguments).status().message();
  };
  EXPECT_EQ(error_message({"-u", "-m"}), "option '-m' needs a value");
  EXPECT_EQ(error_message({"-X"}), "option '-X' needs a value");
  EXPECT_EQ(error_message({"-u"}), "no script given after the options of Python");
  EXPECT_EQ(error_message({"-uy", "a.py"}),
            "cannot read script '-uy': it is neither a file nor an option of Python such as -m, -c or -u");
  EXPECT_NE(error_message({"--version"}).find("cannot read script '--version'"), std::string::npos);
}

}  // namespace
}  // namespace tarantella::launch
