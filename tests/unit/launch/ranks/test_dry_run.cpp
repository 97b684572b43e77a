#include <gtest/gtest.h>

#include "launch/ranks/dry_run.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

TEST(DryRun, ShowsCoresAsRanges) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(DryRun, QuotesWordsForAShell) {
  EXPECT_EQ(shell_quoted({"python3", "--x=1", "a b", "", "it's", "$HOME"}),
            "python3 --x=1 'a b' '' 'it'\\''s' '$HOME'");
}

TEST(DryRun, ShowsWhatARankGets) {
  Placement placement;
  placement.ranks = 1;
  placement.gpus = {"3"};
  placement.cores = {{{0, 1}, 2}};
  placement.numa_nodes = {{0, 1}};
  EXPECT_EQ(
      describe_placement(placement, {"/bin/python3", {"/bin/python3", "a b.py"}}, {{{"X", "1 2"}}},
                         {"3.11.2", TARANTELLA_VERSION}),
      "tarantella " TARANTELLA_VERSION
      ", program /bin/python3 (Python 3.11.2)\nrank 0:\n  cores: 0-1\n  GPU: 3\n  memory of NUMA nodes: 0-1\n"
      "  environment: X='1 2'\n  command: /bin/python3 'a b.py'\n");
}

TEST(DryRun, DividesTheBatchOfTheScript) {
  EXPECT_EQ(describe_batch({"data", "--batch_size=64", "-v"}, 4),
            "--batch_size=64 on 4 ranks: 16 rows for each if it is the global batch, 256 rows in all if it "
            "is the batch of "
            "a rank\n");
  EXPECT_NE(describe_batch({"--batch-size", "7"}, 4).find(" 1 or 2 rows for each"), std::string::npos);
  EXPECT_NE(describe_batch({"--batch_size", "3"}, 1).find(" on 1 rank: 3 rows"), std::string::npos);
  EXPECT_EQ(describe_batch({"--batch-size-per-replica=16"}, 4),
            "--batch-size-per-replica=16 on 4 ranks: 64 rows in all\n");
  EXPECT_EQ(describe_batch({"--batch_size_per_replica", "16"}, 1),
            "--batch_size_per_replica=16 on 1 rank: 16 rows in all\n");
  for (const char* other :
       {"--batch_size=", "--batch_size=0", "--batch_size=-4", "--batch_size=8x", "--batch_size",
        "--batch_size_per_step=4", "--batch_size=99999999999999999999", "batch_size=4"}) {
    EXPECT_EQ(describe_batch({other}, 4), "") << other;
  }
}

TEST(DryRun, ComplainsAboutAnotherVersion) {
  EXPECT_EQ(version_warning({}), "");
  EXPECT_EQ(version_warning({"3.11.2", TARANTELLA_VERSION}), "");
  EXPECT_NE(version_warning({"3.11.2", "0.9"}).find("has tarantella 0.9, but the launcher is"),
            std::string::npos);
  EXPECT_NE(version_warning({"3.11.2", ""}).find("has no package tarantella"), std::string::npos);
}

}  // namespace
}  // namespace tarantella::launch
