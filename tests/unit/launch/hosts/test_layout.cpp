#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launch/hosts/layout.h"
#include "launch/hosts/plan.h"
#include "launch/hosts/this_host.h"
#include "own_folder.h"

namespace tarantella::launch {
namespace {

using Shares = std::vector<HostShare>;

const std::vector<Host> kAny{{"a", {}}, {"b", {}}, {"c", {}}};
const std::vector<Host> kFour{{"a", 4}, {"b", 4}};

Options with(std::optional<int> ranks, std::optional<int> per_node = {}) {
  Options options;
  options.ranks = ranks;
  options.ranks_per_node = per_node;
  return options;
}

TEST(Layout, FillsHostByHostUpToTheSlots) {
  EXPECT_EQ(ranks_on_hosts(kFour, with(6), 1).value(), (Shares{{"a", 0, 4}, {"b", 4, 2}}));
  EXPECT_EQ(ranks_on_hosts(kFour, with(3), 1).value(), (Shares{{"a", 0, 3}}));
  EXPECT_EQ(ranks_on_hosts(kFour, with(9), 1).status().message(),
            "9 ranks are more than the 8 slots of the 2 hosts; use a smaller -n, or more hosts or slots");
}

TEST(Layout, WithoutSlotsRanksAreDealtOut) {
  EXPECT_EQ(ranks_on_hosts(kAny, with(7), 1).value(), (Shares{{"a", 0, 3}, {"b", 3, 2}, {"c", 5, 2}}));
  EXPECT_EQ(ranks_on_hosts(kAny, with(2), 1).value(), (Shares{{"a", 0, 1}, {"b", 1, 1}}));
}

TEST(Layout, RanksPerNodeAreAlikeEverywhere) {
  EXPECT_EQ(ranks_on_hosts(kAny, with({}, 2), 1).value(), (Shares{{"a", 0, 2}, {"b", 2, 2}, {"c", 4, 2}}));
  EXPECT_EQ(
      ranks_on_hosts(kFour, with({}, 5), 1).status().message(),
      "5 ranks per node are more than the 4 slots of host 'a'; use a smaller --n-per-node or more slots");
}

TEST(Layout, SlotsOrTheUsualNumberCountWithoutOptions) {
  EXPECT_EQ(ranks_on_hosts(kFour, {}, 1).value(), (Shares{{"a", 0, 4}, {"b", 4, 4}}));
  EXPECT_EQ(ranks_on_hosts(kAny, {}, 2).value(), (Shares{{"a", 0, 2}, {"b", 2, 2}, {"c", 4, 2}}));
}

const runtime::Gpus kNone{};
const runtime::Gpus kTwo{.driver = true, .ids = {"0", "1"}};

int ranks_in(const Environment& job, const Options& options = {}, const runtime::Gpus& gpus = kNone) {
  const auto plan = plan_for(options, job, gpus);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() && plan.value().shares.size() == 1 ? plan.value().shares[0].ranks : -1;
}

TEST(Plan, ABatchJobOnOneHostDecidesTheNumberOfRanks) {
  const Environment job{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n"}, {"SLURMD_NODENAME", "n"}};
  Environment tasks = job;
  tasks.insert({{"SLURM_NTASKS", "3"}, {"SLURM_TASKS_PER_NODE", "3"}});
  EXPECT_EQ(ranks_in(job), 1);
  EXPECT_EQ(ranks_in(tasks), 3);
  EXPECT_EQ(ranks_in(tasks, {}, kTwo), 2);
  EXPECT_EQ(ranks_in(tasks, with(5), kTwo), 5);
  EXPECT_EQ(ranks_in(tasks, with({}, 1)), 1);
  Options no_gpu;
  no_gpu.no_gpu = true;
  EXPECT_EQ(ranks_in(tasks, no_gpu, kTwo), 3);
  EXPECT_EQ(ranks_in({}), 1);
  EXPECT_EQ(ranks_in({}, {}, kTwo), 2);
}

TEST(Plan, TasksOfABatchJobAreNoLimit) {
  const Environment job{{"SLURM_JOB_ID", "1"},
                        {"SLURM_JOB_NODELIST", "a,b"},
                        {"SLURM_NTASKS", "3"},
                        {"SLURM_TASKS_PER_NODE", "2,1"}};
  const auto shares = [&](const Options& options) { return plan_for(options, job, kNone).value().shares; };
  EXPECT_EQ(shares({}), (Shares{{"a", 0, 2}, {"b", 2, 1}}));
  EXPECT_EQ(shares(with({}, 3)), (Shares{{"a", 0, 3}, {"b", 3, 3}}));
  EXPECT_EQ(shares(with(2)), (Shares{{"a", 0, 2}}));
  EXPECT_EQ(shares(with(3)), (Shares{{"a", 0, 2}, {"b", 2, 1}}));
  EXPECT_EQ(shares(with(4)), (Shares{{"a", 0, 2}, {"b", 2, 2}}));
}

TEST(Plan, InTheShellOfSallocSlurmTellsTheGpus) {
  Environment shell{{"SLURM_JOB_ID", "1"},
                    {"SLURM_JOB_NODELIST", "a,b"},
                    {"SLURM_NTASKS", "2"},
                    {"SLURM_TASKS_PER_NODE", "1(x2)"}};
  const auto shares = [&](const Options& options = {}) {
    return plan_for(options, shell, kTwo).value().shares;
  };
  EXPECT_EQ(shares(), (Shares{{"a", 0, 1}, {"b", 1, 1}})) << "the GPUs of a login node";
  shell["SLURM_GPUS_PER_NODE"] = "a100:4";
  EXPECT_EQ(shares(), (Shares{{"a", 0, 4}, {"b", 4, 4}}));
  EXPECT_EQ(shares(with(2)), (Shares{{"a", 0, 1}, {"b", 1, 1}}));
  Options no_gpu;
  no_gpu.no_gpu = true;
  EXPECT_EQ(shares(no_gpu), (Shares{{"a", 0, 1}, {"b", 1, 1}}));
  shell["SLURMD_NODENAME"] = "a";  // the GPUs of a host of the job
  EXPECT_EQ(shares(), (Shares{{"a", 0, 2}, {"b", 2, 2}}));
}

class PlanWithSqueue : public OwnFolder {};

TEST_F(PlanWithSqueue, InTheShellOfSallocItTellsTheGpus) {
  const std::filesystem::path squeue = folder_ / "squeue";
  std::ofstream(squeue) << "#!/bin/sh\n[ \"$*\" = '--noheader --jobs=7 --format=%b' ] && echo gres:gpu:2\n";
  std::filesystem::permissions(squeue, std::filesystem::perms::owner_all);
  const Environment shell{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "a,b"}, {"PATH", folder_.string()}};
  EXPECT_EQ(plan_for({}, shell, kNone).value().shares, (Shares{{"a", 0, 2}, {"b", 2, 2}}));
}

TEST(Plan, SeveralHostsAreShown) {
  const Environment job{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-5]"}};
  const auto plan = plan_for(with(5), job, kNone);
  EXPECT_EQ(describe_hosts(plan.value()),
            "host n1: rank 0\nhost n2: rank 1\nhost n3: rank 2\nhost n4: rank 3\nhost n5: rank 4\n");
  EXPECT_FALSE(runs_here(plan.value(), job));
}

TEST(Plan, RunsHereOnThisHostAlone) {
  EXPECT_TRUE(runs_here({"x", {{"localhost", 0, 2}}, 1}, {}));
  EXPECT_TRUE(runs_here({"x", {{"n1", 0, 2}}, 1}, {{"SLURMD_NODENAME", "n1"}}));
  EXPECT_FALSE(runs_here({"x", {{"no-such-host.invalid", 0, 2}}, 1}, {}));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
}

}  // namespace
}  // namespace tarantella::launch
