#include <gtest/gtest.h>

#include "launch/hosts/allocation.h"

namespace tarantella::launch {
namespace {

using Hosts = std::vector<Host>;

Result<std::string> no_file(const std::string&) { return Status(Code::kSystem, "no such file"); }

Result<std::optional<Allocation>> found(const Environment& environment, const std::string& file = "") {
  if (file.empty()) return find_allocation(environment, no_file);
  return find_allocation(environment, [&](const std::string&) { return Result<std::string>(file); });
}

std::string mistake(const Environment& environment, const std::string& file = "") {
  return found(environment, file).status().message();
}

TEST(Allocation, OutsideOfJobsThereIsNone) {
  EXPECT_FALSE(found({}).value().has_value());
  EXPECT_FALSE(found({{"SLURM_JOB_ID", "1"}}).value().has_value());
  EXPECT_FALSE(found({{"PBS_NODEFILE", "f"}}).value().has_value());
}

TEST(Allocation, SlurmCountsTasksOnlyIfTheUserDoes) {
  Environment job{
      {"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n[1-2],m"}, {"SLURM_TASKS_PER_NODE", "2(x2),1"}};
  const auto any = found(job);
  EXPECT_EQ(any.value()->job, "Slurm job 12");
  EXPECT_FALSE(any.value()->slots_are_tasks);
  EXPECT_EQ(any.value()->hosts, (Hosts{{"n1", {}}, {"n2", {}}, {"m", {}}}));
  job["SLURM_NTASKS"] = "5";
  EXPECT_EQ(found(job).value()->hosts, (Hosts{{"n1", 2}, {"n2", 2}, {"m", 1}}));
}

TEST(Allocation, InAStepSlurmTellsTheTasksOfThatOnly) {
  const Environment step{{"SLURM_JOB_ID", "12"},
                         {"SLURM_JOB_NODELIST", "n[1-2]"},
                         {"SLURM_NTASKS", "1"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_TASKS_PER_NODE", "1"}};
  EXPECT_TRUE(found(step).value()->inside_step);
  EXPECT_FALSE(found(step).value()->slots_are_tasks);
  EXPECT_EQ(found(step).value()->hosts, (Hosts{{"n1", {}}, {"n2", {}}}));
}

TEST(Allocation, AHeterogeneousJobIsNotTakenForItsFirstComponent) {
  Environment job{{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n1"}, {"SLURM_HET_SIZE", "2"}};
  EXPECT_EQ(
      mistake(job),
      "cannot read the hosts of Slurm job 12: it is heterogeneous, and tarantella sees only one of its 2 "
      "components; ask for one component, or unset SLURM_HET_SIZE to use the first one; --hostfile "
      "names them instead");
  job["SLURM_HET_SIZE"] = "1";
  EXPECT_EQ(found(job).value()->hosts, (Hosts{{"n1", {}}}));
}

TEST(Allocation, SlurmTellsTheGpusOfAHost) {
  const auto gpus = [](const std::string& name, const std::string& value) {
    return found({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n"}, {name, value}}).value()->gpus;
  };
  EXPECT_EQ(gpus("SLURM_GPUS_PER_NODE", "a100:4"), 4);
  EXPECT_EQ(gpus("SLURM_GPUS_PER_NODE", "a100:2,v100:1"), 3);
  EXPECT_EQ(gpus("SLURM_GPUS_PER_NODE", "99999"), 4096);
  EXPECT_EQ(gpus("SLURM_GPUS", "8"), std::nullopt);
  for (const char* none : {"", "0", "a100:", "x", "-1", ",", "0,["}) {
    EXPECT_EQ(gpus("SLURM_GPUS_PER_NODE", none), std::nullopt) << none;
  }
}

TEST(Allocation, SqueueTellsTheGpusOfAHost) {
  EXPECT_EQ(gpus_of_resources("gres:gpu:2\n"), 2);
  EXPECT_EQ(gpus_of_resources("gres/gpu:a100:4"), 4);
  EXPECT_EQ(gpus_of_resources("gres:gpu"), 1);
  EXPECT_EQ(gpus_of_resources("gpu:a100"), 1);
  EXPECT_EQ(gpus_of_resources("gres:gpu:a100:4,gres:gpu:1g.10gb\n"), 5);
  EXPECT_EQ(gpus_of_resources("CLUSTER: one\ngres:gpu:2080ti:2\n"), 2);
  EXPECT_EQ(gpus_of_resources("gres:shard:8,gres:gpu:a100:2,gres/gpu:v100\n"), 3);
  EXPECT_EQ(gpus_of_resources("gres:gpu:99999"), 4096);
  for (const char* none : {"", "N/A\n", "gres:gpu:0", "gres:gpus:2", "gres:shard:4", "gres:", ","}) {
    EXPECT_EQ(gpus_of_resources(none), std::nullopt) << none;
  }
}

TEST(Allocation, OnANodeSlurmSaysThatItGivesGpus) {
  EXPECT_FALSE(slurm_gives_no_gpu({}));
  const Environment job{{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}};
  EXPECT_TRUE(slurm_gives_no_gpu(job));
  for (const char* one :
       {"CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    Environment with_gpus = job;
    with_gpus[one] = "1";
    EXPECT_FALSE(slurm_gives_no_gpu(with_gpus)) << one;
  }
}

TEST(Allocation, SlurmListsThatCannotBeRead) {
  Environment job{{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n[1-"}};
  EXPECT_EQ(
      mistake(job),
      "cannot read the hosts of Slurm job 12: SLURM_JOB_NODELIST ('n[1-'): column 5: a number is missing; "
      "--hostfile names them instead");
  job = {{"SLURM_JOB_ID", "12"},
         {"SLURM_JOB_NODELIST", "n1"},
         {"SLURM_NTASKS", "4"},
         {"SLURM_TASKS_PER_NODE", "2(x2)"}};
  EXPECT_EQ(
      mistake(job),
      "cannot read the hosts of Slurm job 12: SLURM_TASKS_PER_NODE ('2(x2)'): it has 2 numbers for 1 hosts; "
      "--hostfile names them instead");
}

TEST(Allocation, CountsHaveAShortForm) {
  EXPECT_EQ(expand_counts("2(x3),1").value(), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("16").value(), std::vector<int>{16});
  const std::pair<const char*, const char*> wrong[] = {
      {"", "column 1: a number from 1 to 4096 belongs here"},
      {"2,", "column 3: a number from 1 to 4096 belongs here"},
      {"0", "column 1: a number from 1 to 4096 belongs here"},
      {"2(3)", "column 2: ',' belongs here"},
      {"2(x)", "column 4: a number from 1 to 65536 belongs here"},
      {"2(x3", "column 5: ')' belongs here"},
      {"1(x65536),1", "column 11: more than 65536 hosts"},
      {"2 3", "column 2: ',' belongs here"}};
  for (const auto& [list, message] : wrong)
    EXPECT_EQ(expand_counts(list).status().message(), message) << list;
}

TEST(Allocation, PbsNamesAHostPerRank) {
  const Environment job{{"PBS_JOBID", "7.server"}, {"PBS_NODEFILE", "/aux/7"}};
  const auto read = found(job, "b\na\nb\n");
  EXPECT_EQ(read.value()->job, "PBS job 7.server");
  EXPECT_EQ(read.value()->hosts, (Hosts{{"b", 2}, {"a", 1}}));
  EXPECT_EQ(mistake(job, " \n"),
            "cannot read the hosts of PBS job 7.server: PBS_NODEFILE /aux/7 (' ?'): it names no host; "
            "--hostfile names "
            "them instead");
  EXPECT_EQ(mistake(job, "a[1-2]"),
            "cannot read the hosts of PBS job 7.server: PBS_NODEFILE /aux/7 ('a[1-2]'): this is not the name "
            "of one "
            "host; --hostfile names them instead");
  EXPECT_EQ(mistake(job),
            "cannot read the hosts of PBS job 7.server: PBS_NODEFILE ('/aux/7'): no such file; --hostfile "
            "names them "
            "instead");
}

TEST(Allocation, LsfHasThreeForms) {
  const Hosts both{{"h1", 2}, {"h2", 1}};
  EXPECT_EQ(found({{"LSB_JOBID", "3"}, {"LSB_MCPU_HOSTS", "h1 1 h2 1 h1 1"}}).value()->hosts, both);
  EXPECT_EQ(found({{"LSB_JOBID", "3"}, {"LSB_HOSTS", "h1 h1 h2"}}).value()->hosts, both);
  EXPECT_EQ(found({{"LSB_JOBID", "3"}, {"LSB_DJOB_HOSTFILE", "f"}}, "h1\nh1\nh2").value()->hosts, both);
  EXPECT_EQ(mistake({{"LSB_JOBID", "3"}, {"LSB_MCPU_HOSTS", "h1 x"}}),
            "cannot read the hosts of LSF job 3: LSB_MCPU_HOSTS ('h1 x'): 'x' is not a number of slots; "
            "--hostfile names "
            "them instead");
  EXPECT_EQ(mistake({{"LSB_JOBID", "3"}, {"LSB_MCPU_HOSTS", "h1"}}),
            "cannot read the hosts of LSF job 3: LSB_MCPU_HOSTS ('h1'): a number must follow each host; "
            "--hostfile names "
            "them instead");
}

}  // namespace
}  // namespace tarantella::launch
