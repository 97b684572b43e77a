#include <gtest/gtest.h>

#include "launch/hosts/host_assignments.h"
#include "launch/ranks/placement.h"

namespace tarantella::launch {
namespace {

using runtime::Gpus;

Options with(std::optional<int> ranks, bool no_gpu = false) {
  Options options;
  options.ranks = ranks;
  options.no_gpu = no_gpu;
  return options;
}

Placement place(const Options& options, const Gpus& gpus, int fallback = 1) {
  const int default_count = default_ranks(options, gpus.ids.size(), fallback);
  const bool explicit_count = options.ranks || options.ranks_per_node;
  return place_on_gpus(options.ranks.value_or(options.ranks_per_node.value_or(default_count)), explicit_count,
                       options, gpus);
}

const Gpus kNoDriver{};
const Gpus kDriverOnly{.driver = true, .ids = {}};
const Gpus kTwo{.driver = true, .ids = {"0", "1"}};

TEST(Placement, StartsOneRankPerGpu) {
  const Placement placement = place(with({}), kTwo);
  EXPECT_EQ(placement.ranks, 2);
  EXPECT_EQ(placement.gpus, (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(placement.warnings.empty());
}

TEST(Placement, FewerRanksThanGpusTakeTheFirstGpus) {
  const Placement placement = place(with(1), kTwo);
  EXPECT_EQ(placement.gpus, std::vector<std::string>{"0"});
  EXPECT_TRUE(placement.warnings.empty());
}

TEST(Placement, GpusThatNobodyDecidedToLeaveUnusedAreAWarning) {
  const Gpus four{.driver = true, .ids = {"0", "1", "2", "3"}};
  EXPECT_TRUE(place_on_gpus(2, true, {}, four).warnings.empty());
  EXPECT_EQ(place_on_gpus(2, false, {}, four).warnings,
            std::vector<std::string>{
                "2 ranks use 2 of 4 GPUs: --n-per-node 4 uses all, --n-per-node 2 hides this warning"});
  Options options;
  options.hostfile = "hosts";
  EXPECT_EQ(place_on_gpus(2, false, options, four).warnings,
            std::vector<std::string>{
                "2 ranks use 2 of 4 GPUs: slots=4 in the hostfile uses all, slots=2 hides this warning"});
}

TEST(Placement, GpusThatSlurmHasNotGivenAreNoMatterForAWarning) {
  const Gpus two{.ids = {"0", "1"}};  // as gpus_here() has them then
  const Placement one = place_on_gpus(1, false, {}, two);
  EXPECT_EQ(one.gpus, std::vector<std::string>{"0"}) << "Slurm may not know of any GPU";
  EXPECT_TRUE(one.warnings.empty());
  EXPECT_TRUE(place_on_gpus(3, true, {}, two).warnings.empty());
}

TEST(Placement, MoreRanksThanGpusRunOnTheCpu) {
  const Placement placement = place(with(3), kTwo);
  EXPECT_EQ(placement.ranks, 3);
  EXPECT_TRUE(placement.gpus.empty());
  ASSERT_EQ(placement.warnings.size(), 1u);
  EXPECT_NE(placement.warnings[0].find("2 GPUs for 3 ranks"), std::string::npos);
}

TEST(Placement, WarnsOnlyIfTheUserMayExpectGpus) {
  EXPECT_TRUE(place(with(3, true), kTwo).warnings.empty());
  EXPECT_TRUE(place(with({}, true), kDriverOnly).warnings.empty());
  EXPECT_TRUE(place(with({}), kNoDriver).warnings.empty());
  EXPECT_TRUE(place(with(4), kNoDriver).warnings.empty());
  EXPECT_TRUE(place(with(4), Gpus{.driver = true, .hidden_by_user = true, .ids = {}}).warnings.empty());
  EXPECT_EQ(place(with({}), kDriverOnly).warnings.size(), 1u);
}

TEST(Placement, OneRankIsNotBound) {
  Placement placement = place(with(1), kNoDriver);
  place_on_cores(placement, {});
  EXPECT_TRUE(placement.cores.empty());
  placement.ranks = 2;
  place_on_cores(placement, {});
  EXPECT_EQ(placement.cores.size(), 2u);
}

TEST(Placement, RanksPerNodeAndTheUsualNumberCount) {
  Options options;
  options.ranks_per_node = 2;
  EXPECT_EQ(place(options, kNoDriver).ranks, 2);
  EXPECT_EQ(place({}, kNoDriver, 3).ranks, 3);
  EXPECT_EQ(place({}, kTwo, 3).ranks, 2);
  EXPECT_NE(place({}, kDriverOnly, 3).warnings.at(0).find("3 ranks run on the CPU"), std::string::npos);
}

TEST(Placement, NeighboursShareASocket) {
  const std::vector<runtime::Socket> sockets{{{0, 1, 4, 5}, 4, {0}}, {{2, 3}, 2, {1}}};
  const auto shares = on_sockets(sockets, 4);
  EXPECT_EQ(shares[0].cpus, (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(shares[1].cpus, shares[0].cpus);
  EXPECT_EQ(shares[0].cores, 2);
  EXPECT_EQ(shares[2].cpus, (std::vector<int>{2, 3}));
  EXPECT_EQ(shares[3].cores, 1);
  EXPECT_EQ(on_sockets(sockets, 1)[0].cores, 4);
  EXPECT_EQ(on_sockets(sockets, 9)[8].cores, 1);
}

TEST(Placement, OneRankIsPinnedIfTheUserAsks) {
  Options options;
  options.pin_to_socket = options.pin_memory_to_socket = true;
  Placement placement = place(with(1), kNoDriver);
  place_on_cores(placement, options);
  ASSERT_EQ(placement.cores.size(), 1u);
  EXPECT_EQ(placement.numa_nodes.empty(), !placement.warnings.empty());
}

TEST(Placement, SaysHowManyRanksShareCores) {
  Placement placement;
  placement.ranks = 4;
  EXPECT_EQ(oversubscription_warning(placement), "");
  placement.cores_here = 2;
  EXPECT_EQ(oversubscription_warning(placement),
            "4 ranks share 2 cores: use a smaller -n, or more cores (Slurm: --cpus-per-task)");
  placement.threads_here = 4;
  EXPECT_EQ(oversubscription_warning(placement),
            "4 ranks share 2 cores with 4 hardware threads: use a smaller -n, or more cores "
            "(Slurm: --cpus-per-task, --hint=nomultithread)");
  placement.cores_here = 4;
  EXPECT_EQ(oversubscription_warning(placement), "");
}

}  // namespace
}  // namespace tarantella::launch
