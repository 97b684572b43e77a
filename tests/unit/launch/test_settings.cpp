#include <gtest/gtest.h>

#include "launch/settings.h"

namespace tarantella::launch {
namespace {

TEST(Settings, VariablesCompleteOptions) {
  Options options;
  Environment user{{"TNT_LOG_LEVEL", " info "}, {"TNT_TIMELINE", "t.json"}, {"TNT_LOG_DIR", "logs"}};
  complete(options, user);
  EXPECT_EQ(options.log_level, "INFO");
  EXPECT_EQ(options.timeline, "t.json");
  EXPECT_EQ(options.log_dir, "logs");
  EXPECT_FALSE(options.output_on_all_devices);
}

TEST(Settings, OptionsOverrideVariables) {
  Options options;
  options.log_dir = "mine";
  options.log_level = "ERROR";
  Environment user{{"TNT_LOG_DIR", "logs"}, {"TNT_LOG_LEVEL", "DEBUG"}};
  complete(options, user);
  EXPECT_EQ(options.log_dir, "mine");
  EXPECT_EQ(options.log_level, "ERROR");
}

TEST(Settings, SlurmTellsWhetherItGivesGpus) {
  Options options;
  Environment user{{"SLURM_JOB_ID", "1"}};
  complete(options, user);
  EXPECT_TRUE(options.slurm_gives_no_gpu);
}

TEST(Settings, VariablesOfTheCommandLineCountLikeOthers) {
  Options options;
  options.variables = {{"TNT_OUTPUT_ON_ALL_DEVICES", "1"}, {"A", "new"}};
  Environment user{{"A", "old"}};
  complete(options, user);
  EXPECT_TRUE(options.output_on_all_devices);
  EXPECT_EQ(user.at("A"), "new");
}

}  // namespace
}  // namespace tarantella::launch
