#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "runtime/topology/topology.h"

namespace tarantella::runtime {
namespace {

std::vector<int> first_cpus(int count) {
  std::vector<int> cpus(static_cast<size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

void expect_disjoint_and_covering(const std::vector<CoreShare>& shares, const std::vector<int>& allowed) {
  std::vector<int> all;
  for (const CoreShare& share : shares) {
    EXPECT_FALSE(share.cpus.empty());
    EXPECT_TRUE(std::is_sorted(share.cpus.begin(), share.cpus.end()));
    all.insert(all.end(), share.cpus.begin(), share.cpus.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, allowed);
}

TEST(Topology, SharesTheCoresOfThisMachine) {
  const auto allowed = allowed_cpus();
  ASSERT_TRUE(allowed.ok());
  ASSERT_FALSE(allowed.value().empty());
  expect_disjoint_and_covering(share_cores(allowed.value(), 1), allowed.value());
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const auto shares = share_cores(allowed.value(), ranks);
    ASSERT_EQ(shares.size(), static_cast<size_t>(ranks));
    std::set<int> used;
    for (const CoreShare& share : shares) {
      EXPECT_GE(share.cores, 1);
      used.insert(share.cpus.begin(), share.cpus.end());
    }
    EXPECT_EQ(std::vector<int>(used.begin(), used.end()), allowed.value());
  }
}

TEST(Topology, StaysInsideTheMaskOfTheProcess) {
  std::thread([] {
    const int cpu = allowed_cpus().value().front();
    ASSERT_TRUE(bind_to({cpu}).ok());
    EXPECT_EQ(allowed_cpus().value(), std::vector<int>{cpu});
    for (const CoreShare& share : share_cores({cpu}, 3)) EXPECT_EQ(share.cpus, std::vector<int>{cpu});
  }).join();
}

TEST(Topology, RefusesToBindToAMissingCore) { EXPECT_FALSE(bind_to({16000}).ok()); }

TEST(Topology, SplitsCoresEvenly) {
  const std::vector<std::vector<int>> cores{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  const auto two = split_evenly(cores, 2);
  EXPECT_EQ(two[0].cpus, (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(two[0].cores, 2);
  EXPECT_EQ(two[1].cpus, (std::vector<int>{2, 3, 6, 7}));
  const auto three = split_evenly(cores, 3);
  EXPECT_EQ(three[0].cores + three[1].cores + three[2].cores, 4);
  const auto eight = split_evenly(cores, 8);
  for (size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(eight[rank].cpus, (cores[rank * 4 / 8]));
}

/// Synthetic machines of hwloc. Without hwloc these tests split CPUs that this machine does not have.
class Synthetic : public testing::Test {
 protected:
  static void machine(const char* description) { ::setenv("HWLOC_SYNTHETIC", description, 1); }
  void TearDown() override { ::unsetenv("HWLOC_SYNTHETIC"); }
};

TEST_F(Synthetic, SharesAreDisjointAndCoverAllCores) {
  for (const char* description :
       {"package:2 numa:1 core:4 pu:1", "numa:4 core:3 pu:1", "package:1 core:7 pu:1"}) {
    machine(description);
    const auto allowed = first_cpus(description[0] == 'n' ? 12 : description[8] == '2' ? 8 : 7);
    for (int ranks = 1; ranks <= static_cast<int>(allowed.size()); ++ranks) {
      SCOPED_TRACE(testing::Message() << description << ", " << ranks << " ranks");
      expect_disjoint_and_covering(share_cores(allowed, ranks), allowed);
    }
  }
}

TEST_F(Synthetic, HandlesAMaskWithHoles) {
  machine("package:2 core:4 pu:1");
  const std::vector<int> allowed{1, 2, 5, 6, 7};
  for (int ranks = 1; ranks <= 5; ++ranks) expect_disjoint_and_covering(share_cores(allowed, ranks), allowed);
}

#ifdef TARANTELLA_TEST_HWLOC
TEST_F(Synthetic, RanksStayInsideAPackage) {
  machine("package:2 numa:1 core:4 pu:2");
  const auto shares = share_cores(first_cpus(16), 2);
  EXPECT_EQ(shares[0].cpus, first_cpus(8));
  EXPECT_EQ(shares[0].cores, 4);
  for (const CoreShare& share : share_cores(first_cpus(16), 3)) {
    EXPECT_EQ(share.cpus.front() / 8, share.cpus.back() / 8);
  }
}

TEST_F(Synthetic, HardwareThreadsOfACoreStayTogether) {
  machine("package:1 core:4 pu:2");
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const CoreShare& share : share_cores(first_cpus(8), ranks)) {
      EXPECT_EQ(share.cpus.size(), 2 * static_cast<size_t>(share.cores));
      EXPECT_EQ(share.cpus.front() % 2, 0);
      EXPECT_EQ(share.cpus.back() % 2, 1);
    }
  }
  const auto eight = share_cores(first_cpus(8), 8);
  EXPECT_EQ(eight[0].cpus, (std::vector<int>{0, 1}));
  EXPECT_EQ(eight[1].cpus, (std::vector<int>{0, 1}));
  EXPECT_EQ(eight[7].cpus, (std::vector<int>{6, 7}));
}
#endif

}  // namespace
}  // namespace tarantella::runtime
