#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launch/hosts/host_assignments.h"
#include "launch/hosts/host_layout.h"
#include "launch/hosts/this_host.h"
#include "own_folder.h"

namespace tarantella::launch {
namespace {

using Assignments = std::vector<HostAssignment>;

const std::vector<Host> kAny{{"a", {}}, {"b", {}}, {"c", {}}};
const std::vector<Host> kFour{{"a", 4}, {"b", 4}};

Options with(std::optional<int> ranks, std::optional<int> per_node = {}) {
  Options options;
  options.ranks = ranks;
  options.ranks_per_node = per_node;
  return options;
}

TEST(HostAssignments, FillsHostByHostUpToTheSlots) {
  EXPECT_EQ(assign_ranks(kFour, with(6), 1).value(), (Assignments{{"a", 0, 4}, {"b", 4, 2}}));
  EXPECT_EQ(assign_ranks(kFour, with(3), 1).value(), (Assignments{{"a", 0, 3}}));
  EXPECT_EQ(assign_ranks(kFour, with(9), 1).status().message(),
            "9 ranks are more than the 8 slots of the 2 hosts; use a smaller -n, or more hosts or slots");
}

TEST(HostAssignments, WithoutSlotsRanksAreDealtOut) {
  EXPECT_EQ(assign_ranks(kAny, with(7), 1).value(), (Assignments{{"a", 0, 3}, {"b", 3, 2}, {"c", 5, 2}}));
  EXPECT_EQ(assign_ranks(kAny, with(2), 1).value(), (Assignments{{"a", 0, 1}, {"b", 1, 1}}));
}

TEST(HostAssignments, RanksPerNodeAreAlikeEverywhere) {
  EXPECT_EQ(assign_ranks(kAny, with({}, 2), 1).value(), (Assignments{{"a", 0, 2}, {"b", 2, 2}, {"c", 4, 2}}));
  EXPECT_EQ(
      assign_ranks(kFour, with({}, 5), 1).status().message(),
      "5 ranks per node are more than the 4 slots of host 'a'; use a smaller --n-per-node or more slots");
}

TEST(HostAssignments, SlotsOrTheUsualNumberCountWithoutOptions) {
  EXPECT_EQ(assign_ranks(kFour, {}, 1).value(), (Assignments{{"a", 0, 4}, {"b", 4, 4}}));
  EXPECT_EQ(assign_ranks(kAny, {}, 2).value(), (Assignments{{"a", 0, 2}, {"b", 2, 2}, {"c", 4, 2}}));
}

const runtime::Gpus kNone{};
const runtime::Gpus kTwo{.driver = true, .ids = {"0", "1"}};

int ranks_in(const Environment& job, const Options& options = {}, const runtime::Gpus& gpus = kNone) {
  const auto layout = host_layout_for(options, job, gpus);
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  return layout.ok() && layout.value().assignments.size() == 1 ? layout.value().assignments[0].ranks : -1;
}

TEST(HostLayout, ABatchJobOnOneHostDecidesTheNumberOfRanks) {
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

TEST(HostLayout, TasksOfABatchJobAreNoLimit) {
  const Environment job{{"SLURM_JOB_ID", "1"},
                        {"SLURM_JOB_NODELIST", "a,b"},
                        {"SLURM_NTASKS", "3"},
                        {"SLURM_TASKS_PER_NODE", "2,1"}};
  const auto assignments = [&](const Options& options) {
    return host_layout_for(options, job, kNone).value().assignments;
  };
  EXPECT_EQ(assignments({}), (Assignments{{"a", 0, 2}, {"b", 2, 1}}));
  EXPECT_EQ(assignments(with({}, 3)), (Assignments{{"a", 0, 3}, {"b", 3, 3}}));
  EXPECT_EQ(assignments(with(2)), (Assignments{{"a", 0, 2}}));
  EXPECT_EQ(assignments(with(3)), (Assignments{{"a", 0, 2}, {"b", 2, 1}}));
  EXPECT_EQ(assignments(with(4)), (Assignments{{"a", 0, 2}, {"b", 2, 2}}));
}

TEST(HostLayout, InTheShellOfSallocSlurmTellsTheGpus) {
  Environment shell{{"SLURM_JOB_ID", "1"},
                    {"SLURM_JOB_NODELIST", "a,b"},
                    {"SLURM_NTASKS", "2"},
                    {"SLURM_TASKS_PER_NODE", "1(x2)"}};
  const auto assignments = [&](const Options& options = {}) {
    return host_layout_for(options, shell, kTwo).value().assignments;
  };
  EXPECT_EQ(assignments(), (Assignments{{"a", 0, 1}, {"b", 1, 1}})) << "the GPUs of a login node";
  shell["SLURM_GPUS_PER_NODE"] = "a100:4";
  EXPECT_EQ(assignments(), (Assignments{{"a", 0, 4}, {"b", 4, 4}}));
  EXPECT_EQ(assignments(with(2)), (Assignments{{"a", 0, 1}, {"b", 1, 1}}));
  Options no_gpu;
  no_gpu.no_gpu = true;
  EXPECT_EQ(assignments(no_gpu), (Assignments{{"a", 0, 1}, {"b", 1, 1}}));
  shell["SLURMD_NODENAME"] = "a";  // the GPUs of a host of the job
  EXPECT_EQ(assignments(), (Assignments{{"a", 0, 2}, {"b", 2, 2}}));
}

class HostLayoutWithSqueue : public OwnFolder {};

TEST_F(HostLayoutWithSqueue, InTheShellOfSallocItTellsTheGpus) {
  const std::filesystem::path squeue = folder_ / "squeue";
  std::ofstream(squeue) << "#!/bin/sh\n[ \"$*\" = '--noheader --jobs=7 --format=%b' ] && echo gres:gpu:2\n";
  std::filesystem::permissions(squeue, std::filesystem::perms::owner_all);
  const Environment shell{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "a,b"}, {"PATH", folder_.string()}};
  EXPECT_EQ(host_layout_for({}, shell, kNone).value().assignments, (Assignments{{"a", 0, 2}, {"b", 2, 2}}));
}

TEST(HostLayout, SeveralHostsAreShown) {
  const Environment job{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-5]"}};
  const auto layout = host_layout_for(with(5), job, kNone);
  EXPECT_EQ(describe_hosts(layout.value()),
            "host n1: rank 0\nhost n2: rank 1\nhost n3: rank 2\nhost n4: rank 3\nhost n5: rank 4\n");
  EXPECT_FALSE(runs_here(layout.value(), job));
}

TEST(HostLayout, RunsHereOnThisHostAlone) {
  EXPECT_TRUE(runs_here({"x", {{"localhost", 0, 2}}, 1}, {}));
  EXPECT_TRUE(runs_here({"x", {{"n1", 0, 2}}, 1}, {{"SLURMD_NODENAME", "n1"}}));
  EXPECT_FALSE(runs_here({"x", {{"no-such-host.invalid", 0, 2}}, 1}, {}));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
}

TEST(AssignmentsWithout, NumberTheRanksThatAreLeft) {
  const std::vector<HostAssignment> assignments = {{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 2}};
  EXPECT_EQ(assignments_without(assignments, {"b"}), (std::vector<HostAssignment>{{"a", 0, 2}, {"c", 2, 2}}));
  EXPECT_EQ(assignments_without(assignments, {"a", "c"}), (std::vector<HostAssignment>{{"b", 0, 1}}));
  EXPECT_EQ(assignments_without(assignments, {}), assignments);
}

}  // namespace
}  // namespace tarantella::launch
