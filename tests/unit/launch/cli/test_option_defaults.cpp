#include <gtest/gtest.h>

#include "launch/cli/option_defaults.h"

namespace tarantella::launch {
namespace {

TEST(Settings, VariablesCompleteOptions) {
  Options options;
  Environment environment{{"TNT_LOG_LEVEL", " info "}, {"TNT_TIMELINE", "t.json"}, {"TNT_LOG_DIR", "logs"}};
  apply_option_defaults(options, environment);
  EXPECT_EQ(options.log_level, "INFO");
  EXPECT_EQ(options.timeline, "t.json");
  EXPECT_EQ(options.log_dir, "logs");
  EXPECT_FALSE(options.output_on_all_devices);
}

TEST(Settings, OptionsOverrideVariables) {
  Options options;
  options.log_dir = "mine";
  options.log_level = "ERROR";
  Environment environment{{"TNT_LOG_DIR", "logs"}, {"TNT_LOG_LEVEL", "DEBUG"}};
  apply_option_defaults(options, environment);
  EXPECT_EQ(options.log_dir, "mine");
  EXPECT_EQ(options.log_level, "ERROR");
}

TEST(Settings, VariablesOfTheCommandLineCountLikeOthers) {
  Options options;
  options.variables = {{"TNT_OUTPUT_ON_ALL_DEVICES", "1"}, {"A", "new"}};
  Environment environment{{"A", "old"}};
  apply_option_defaults(options, environment);
  EXPECT_TRUE(options.output_on_all_devices);
  EXPECT_EQ(environment.at("A"), "new");
}

}  // namespace
}  // namespace tarantella::launch
