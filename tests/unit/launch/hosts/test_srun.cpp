#include <gtest/gtest.h>

#include "launch/hosts/host_layout.h"
#include "launch/hosts/srun.h"

namespace tarantella::launch {
namespace {

const Environment kShell{
    {"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n1"}, {"SLURM_JOB_CPUS_PER_NODE", "16(x2)"}};

TEST(Srun, OnlyTheShellOfSallocIsOutside) {
  Environment on_node = kShell;
  on_node["SLURMD_NODENAME"] = "n1";
  EXPECT_TRUE(is_outside_of_slurm_job(kShell));
  EXPECT_FALSE(is_outside_of_slurm_job(on_node));
  EXPECT_FALSE(is_outside_of_slurm_job({}));
}

TEST(Srun, MustBeInPath) {
  Environment shell = kShell;
  shell["PATH"] = "/nowhere";
  EXPECT_EQ(command_through_srun("/t", {}, "n1", shell).status().code(), Code::kSystem);
}

TEST(Srun, TheTasksOfTheUserReachTheNode) {
  const Environment step{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n1"},  {"SLURMD_NODENAME", "n1"},
                         {"SLURM_NTASKS", "1"}, {"SLURM_TASKS_PER_NODE", "1"}, {kTasksVariable, "3"}};
  const auto layout = host_layout_for({}, step, {});
  EXPECT_EQ(layout.value().assignments[0].ranks, 3);
  EXPECT_EQ(layout.value().tasks, 3);
}

TEST(Srun, SeveralTasksAreRefusedOnce) {
  Environment task{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_NE(check_started_once(task, false).message().find("srun has started tarantella 4 times"),
            std::string::npos);
  task["SLURM_PROCID"] = "1";
  EXPECT_FALSE(check_started_once(task, false).ok());
  EXPECT_NE(check_started_once(task, true).message(), "");
  EXPECT_EQ(check_started_once(task, false).message(), "");
  task["TNT_RANK_PID"] = "7";  // a rank of srun's has started this launcher
  EXPECT_TRUE(check_started_once(task, false).ok());
  EXPECT_FALSE(
      check_started_once({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}}, false).ok());
  const Environment torchrun{{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_NE(check_started_once(torchrun, false).message().find("torchrun has started tarantella 2 times"),
            std::string::npos);
  EXPECT_TRUE(check_started_once({{"WORLD_SIZE", "2"}, {"RANK", "0"}}, false).ok()) << "of a site, perhaps";
  EXPECT_TRUE(check_started_once({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, false).ok());
  EXPECT_TRUE(check_started_once({}, false).ok());
}

TEST(Srun, AJobOfItsOwnInATaskUnsetsOneVariable) {
  for (Environment task :
       {Environment{{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "none"}},
        Environment{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}},
        Environment{{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "2"}},
        Environment{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}}) {
    const std::string message = check_started_once(task, false).message(),
                      cure = "if this is a job of its own, unset ";
    const size_t found = message.find(cure);
    ASSERT_NE(found, std::string::npos) << message;
    EXPECT_EQ(task.erase(message.substr(found + cure.size())), 1u) << message;
    EXPECT_TRUE(check_started_once(task, false).ok()) << message;
  }
}

}  // namespace
}  // namespace tarantella::launch
