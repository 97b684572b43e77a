#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "collective/flag_groups.h"

namespace tarantella::collective {
namespace {

using Caches = std::vector<uint64_t>;

std::vector<std::vector<int>> groups_of(const Caches& caches) {
  const FlagGroups groups(caches);
  std::vector<std::vector<int>> found;
  for (size_t group = 0; group < groups.count(); ++group) found.push_back(groups.ranks(group));
  return found;
}

size_t root_of(size_t ranks) {
  size_t root = 1;
  while (root * root < ranks) ++root;
  return root;
}

/// The cache lines of others that a rank of the largest flag group looks at.
size_t lines_of(const FlagGroups& groups) { return groups.largest() - 1 + groups.count() - 1; }

void expect_each_rank_in_one(const FlagGroups& groups, size_t ranks) {
  std::vector<int> found;
  for (size_t group = 0; group < groups.count(); ++group) {
    for (size_t place = 0; place < groups.ranks(group).size(); ++place) {
      const int rank = groups.ranks(group)[place];
      found.push_back(rank);
      EXPECT_EQ(groups.group_of(rank), group);
      EXPECT_EQ(groups.index_of(rank), place);
      for (size_t other = 0; other < groups.count(); ++other)
        EXPECT_EQ(groups.group_of(groups.relay_rank(rank, other)), other);
    }
  }
  std::sort(found.begin(), found.end());
  ASSERT_EQ(found.size(), ranks);
  for (size_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(found[rank], static_cast<int>(rank));
}

TEST(FlagGroups, AreOneOfAllRanks) {
  const FlagGroups groups(3);
  EXPECT_EQ(groups.count(), 1u);
  EXPECT_EQ(groups.ranks(0), (std::vector<int>{0, 1, 2}));
  expect_each_rank_in_one(groups, 3);
}

TEST(FlagGroups, FollowTheNumbersOfTheRanksWhereCachesAreUnknown) {
  EXPECT_EQ(groups_of(Caches(9)), (std::vector<std::vector<int>>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}));
  for (size_t ranks = 1; ranks <= 300; ++ranks) {
    const FlagGroups groups{Caches(ranks)};
    expect_each_rank_in_one(groups, ranks);
    EXPECT_LE(lines_of(groups), 2 * (root_of(ranks) - 1)) << ranks;
  }
  EXPECT_EQ(lines_of(FlagGroups(Caches(64))), 7u + 7u);
}

TEST(FlagGroups, AreTheRanksOfACache) {
  Caches caches;
  for (uint64_t rank = 0; rank < 64; ++rank) caches.push_back(100 + rank % 8);
  const FlagGroups groups(caches);
  ASSERT_EQ(groups.count(), 8u);
  for (int rank = 0; rank < 64; ++rank) EXPECT_EQ(groups.group_of(rank), static_cast<size_t>(rank) % 8);
}

TEST(FlagGroups, CutTheRanksOfALargeCacheEvenly) {
  Caches caches(24, 1);
  caches.resize(48, 2);
  const FlagGroups groups(caches);
  ASSERT_EQ(groups.count(), 8u);
  for (int rank = 0; rank < 48; ++rank) EXPECT_EQ(groups.group_of(rank), static_cast<size_t>(rank) / 6);
}

TEST(FlagGroups, JoinTheRanksOfSmallCaches) {
  Caches caches;
  for (uint64_t rank = 0; rank < 64; ++rank) caches.push_back(rank / 2);
  const FlagGroups groups(caches);
  ASSERT_EQ(groups.count(), 8u);
  for (int rank = 0; rank < 64; ++rank) EXPECT_EQ(groups.group_of(rank), static_cast<size_t>(rank) / 8);
}

TEST(FlagGroups, AreFewAndSmallOnAnyMachine) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t ranks = 1 + random() % 200;
    const size_t most = 1 + random() % ranks;
    Caches caches;
    for (size_t rank = 0; rank < ranks; ++rank) caches.push_back(random() % most);
    const FlagGroups groups(caches);
    expect_each_rank_in_one(groups, ranks);
    EXPECT_LE(groups.largest(), root_of(ranks));
    for (size_t group = 1; group < groups.count(); ++group)
      EXPECT_GT(groups.ranks(group - 1).size() + groups.ranks(group).size(), root_of(ranks));
    EXPECT_LT(lines_of(groups), 3 * root_of(ranks));
  }
}

}  // namespace
}  // namespace tarantella::collective
