#include <gtest/gtest.h>

#include "launch/cli/options.h"

namespace tarantella::launch {
namespace {

Result<Options> parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tarantella");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return parse_options(static_cast<int>(arguments.size()), argv.data());
}

std::string error_message(std::vector<std::string> arguments) {
  return parse(std::move(arguments)).status().message();
}

TEST(Options, AreUnsetByDefault) {
  const auto options = parse({"model.py"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options.value().action, Action::kRun);
  EXPECT_FALSE(options.value().ranks);
  EXPECT_FALSE(options.value().no_gpu);
  EXPECT_FALSE(options.value().log_level);
  EXPECT_FALSE(options.value().fusion_threshold_kb);
  EXPECT_FALSE(options.value().gather_limit_mib);
  EXPECT_EQ(options.value().script, "model.py");
  EXPECT_TRUE(options.value().arguments.empty());
}

TEST(Options, LogLevelsAreNamedInAnyCase) {
  EXPECT_EQ(log_level_named("error"), "ERROR");
  EXPECT_FALSE(log_level_named("").has_value());
  EXPECT_FALSE(log_level_named("LOUD").has_value());
}

TEST(Options, TakeNInEveryForm) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"-n", "4"}, {"-n4"}, {"--n", "4"}, {"--n=4"}, {"-n", "9", "-n", "4"}, {"-n", "04"}}) {
    auto all = arguments;
    all.push_back("model.py");
    const auto options = parse(all);
    ASSERT_TRUE(options.ok()) << options.status().message();
    EXPECT_EQ(options.value().ranks, 4);
  }
}

TEST(Options, WhatFollowsTheScriptIsTheScripts) {
  using Arguments = std::vector<std::string>;
  EXPECT_EQ(parse({"-n", "2", "a.py", "-n", "3", "--", "--help"}).value().arguments,
            (Arguments{"-n", "3", "--", "--help"}));
  EXPECT_EQ(parse({"--", "a.py", "--", "x"}).value().arguments, (Arguments{"--", "x"}));
  EXPECT_EQ(parse({"--", "--version"}).value().script, "--version");
}

TEST(Options, HelpAndVersionNeedNoScript) {
  EXPECT_EQ(parse({"-h"}).value().action, Action::kHelp);
  EXPECT_EQ(parse({"-n", "2", "--help", "--nonsense"}).value().action, Action::kHelp);
  EXPECT_EQ(parse({"--version"}).value().action, Action::kVersion);
  for (const char* first : {"-hq", "-hn", "-hh", "--help"}) {  // what follows is not looked at
    for (const char* second : {"--version", "--dry-run", "-n", "-n0", "a.py"}) {
      const auto options = parse({first, second});
      ASSERT_TRUE(options.ok()) << first << " " << second << ": " << options.status().message();
      EXPECT_EQ(options.value().action, Action::kHelp) << first << " " << second;
    }
  }
  EXPECT_EQ(parse({"-hq"}).value().action, Action::kHelp);
  EXPECT_EQ(parse({"-hn"}).value().action, Action::kHelp);
}

TEST(Options, MistakesNameTheWord) {
  EXPECT_EQ(error_message({"--no-gup", "a.py"}),
            "unknown option '--no-gup'; did you mean '--no-gpu'? usage: tarantella [options] -- script.py "
            "[arguments]");
  EXPECT_EQ(error_message({"--dryrun", "a.py"}),
            "unknown option '--dryrun'; did you mean '--dry-run'? usage: tarantella [options] -- script.py "
            "[arguments]");
  EXPECT_EQ(error_message({"-q", "a.py"}),
            "unknown option '-q'; 'tarantella --help' lists them; usage: tarantella [options] -- script.py "
            "[arguments]");
  EXPECT_EQ(error_message({"-n", "0", "a.py"}), "option '-n' needs a whole number from 1 to 4096, not '0'");
  EXPECT_EQ(error_message({"--log-level", "x", "a.py"}),
            "option '--log-level' needs DEBUG, INFO, WARNING or ERROR, not 'x'");
  EXPECT_EQ(error_message({"--grace-seconds", "soon", "a.py"}),
            "option '--grace-seconds' needs a number of seconds from 0 to 1000000, not 'soon'");
  EXPECT_NE(error_message({}).find("no script given"), std::string::npos);
}

TEST(Options, TheRefusedWordIsNamedWhateverStandsBefore) {
  for (const auto& before : std::vector<std::vector<std::string>>{
           {}, {"-n2"}, {"-n", "2"}, {"--n=2"}, {"--log-level=INFO"}, {"--no-gpu"}, {"--no-g"}}) {
    for (const std::string wrong : {"-q", "-qx", "--quite-something-else"}) {
      auto arguments = before;
      arguments.insert(arguments.end(), {wrong, "a.py"});
      EXPECT_EQ(error_message(arguments).find("unknown option '" + wrong + "'; "), 0U)
          << error_message(arguments);
    }
    auto arguments = before;
    arguments.push_back("--log-level");
    EXPECT_EQ(error_message(arguments), "option '--log-level' needs a value");
  }
}

TEST(Options, TakeGraceSecondsFromZeroUp) {
  EXPECT_FALSE(parse({"a.py"}).value().grace_seconds);
  EXPECT_EQ(parse({"--start-timeout", "90", "a.py"}).value().start_timeout, "90");
  EXPECT_EQ(error_message({"--start-timeout", "0", "a.py"}),
            "option '--start-timeout' needs a number of seconds above 0, not '0'");
  EXPECT_EQ(parse({"--grace-seconds=0", "a.py"}).value().grace_seconds, 0);
  EXPECT_EQ(parse({"--grace-seconds", "2.5", "a.py"}).value().grace_seconds, 2.5);
  for (const char* argument : {"", "-1", "nan", "inf", "1e7", "5s"}) {
    EXPECT_FALSE(parse({"--grace-seconds", argument, "a.py"}).ok()) << argument;
  }
}

TEST(Options, TakeTheFileOfATimeline) {
  EXPECT_FALSE(parse({"a.py"}).value().timeline);
  EXPECT_EQ(parse({"--timeline", "t.json", "a.py"}).value().timeline, "t.json");
  EXPECT_EQ(parse({"--timeline=x", "--timeline=a b.json", "a.py"}).value().timeline, "a b.json");
  EXPECT_EQ(error_message({"--timeline=", "a.py"}), "option '--timeline' needs the name of a file, not ''");
  EXPECT_EQ(error_message({"--timeline"}), "option '--timeline' needs a value");
}

TEST(Options, TakeVariablesUntilAnotherWord) {
  using Variables = std::map<std::string, std::string>;
  const auto several = parse({"-x", "A=1", "B_2=b=c", "-x", "A=", "--no-gpu", "a.py", "C=3"});
  ASSERT_TRUE(several.ok()) << several.status().message();
  EXPECT_EQ(several.value().variables, (Variables{{"A", ""}, {"B_2", "b=c"}}));
  EXPECT_EQ(several.value().script, "a.py");
  EXPECT_EQ(several.value().arguments, std::vector<std::string>{"C=3"});
  EXPECT_EQ(parse({"-xA=1", "B=2", "--", "C=3", "D=4"}).value().script, "C=3");
  EXPECT_EQ(parse({"-x", "A=1", "--no-gpu", "B=2"}).value().script, "B=2");
  EXPECT_EQ(parse({"-x", "A=1", "./B=2"}).value().script, "./B=2");
}

TEST(Options, RefuseVariablesThatAreNone) {
  for (const std::string argument : {"A", "=1", "1A=2", "a-b=c", "", "--", "a.py"}) {
    EXPECT_EQ(error_message({"-x", argument, "a.py"}),
              "option '-x' needs NAME=VALUE, not '" + argument + "'");
  }
  EXPECT_EQ(error_message({"-x"}), "option '-x' needs a value");
  EXPECT_EQ(error_message({"-x", "TNT_RANK=1", "a.py"}),
            "option '-x' cannot set TNT_RANK, which the launcher sets for each rank");
  EXPECT_TRUE(parse({"-x", "TNT_LOG_LEVEL=INFO", "a.py"}).ok());
}

TEST(Options, TakeRanksPerNodeUnderBothNames) {
  EXPECT_EQ(parse({"--n-per-node=4", "a.py"}).value().ranks_per_node, 4);
  EXPECT_EQ(parse({"--devices-per-node", "4", "a.py"}).value().ranks_per_node, 4);
  EXPECT_EQ(error_message({"--devices-per-node", "0", "a.py"}),
            "option '--n-per-node' needs a whole number from 1 to 4096, not '0'");
  EXPECT_EQ(error_message({"--devices-per-node"}), "option '--devices-per-node' needs a value");
  EXPECT_EQ(
      error_message({"-n", "2", "--n-per-node", "2", "a.py"}),
      "options '-n' and '--n-per-node' exclude each other: '-n' is the number of ranks of the whole job");
}

TEST(Options, ShowAllRanksUnderBothNames) {
  for (const std::string ranks : {"devices", "ranks"}) {
    EXPECT_TRUE(parse({"--output-on-all-" + ranks, "a.py"}).value().output_on_all_devices);
    EXPECT_TRUE(parse({"--log-on-all-" + ranks, "a.py"}).value().log_on_all_devices);
  }
  EXPECT_EQ(error_message({"--output-on-all-ranks=1"}), "option '--output-on-all-ranks' takes no value");
}

TEST(Options, CleanupNeedsNoScriptAndForceNeedsCleanup) {
  EXPECT_EQ(parse({"--cleanup"}).value().action, Action::kCleanup);
  EXPECT_TRUE(parse({"--force", "--cleanup", "--", "a.py"}).value().force);
  EXPECT_TRUE(parse({"--this-host", "--", "a.py"}).value().this_host);
  EXPECT_EQ(error_message({"--force", "a.py"}), "option '--force' needs '--cleanup'");
}

TEST(Options, AnInterpreterMayBeEmpty) {
  EXPECT_FALSE(parse({"a.py"}).value().interpreter);
  EXPECT_EQ(parse({"--python-interpreter=", "a.py"}).value().interpreter, "");
  EXPECT_EQ(parse({"--python-interpreter", "gdb --args python3", "a.py"}).value().interpreter,
            "gdb --args python3");
}

}  // namespace
}  // namespace tarantella::launch
