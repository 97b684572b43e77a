#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "collective/blocks.h"

namespace tarantella::collective {
namespace {

using Caches = std::vector<uint64_t>;

std::vector<std::vector<int>> blocks_of(const Caches& caches) {
  const Blocks blocks(caches);
  std::vector<std::vector<int>> found;
  for (size_t block = 0; block < blocks.count(); ++block) found.push_back(blocks.ranks(block));
  return found;
}

size_t root_of(size_t ranks) {
  size_t root = 1;
  while (root * root < ranks) ++root;
  return root;
}

/// The cache lines of others that a rank of the largest block looks at.
size_t lines_of(const Blocks& blocks) { return blocks.largest() - 1 + blocks.count() - 1; }

void expect_each_rank_in_one(const Blocks& blocks, size_t ranks) {
  std::vector<int> found;
  for (size_t block = 0; block < blocks.count(); ++block) {
    for (size_t place = 0; place < blocks.ranks(block).size(); ++place) {
      const int rank = blocks.ranks(block)[place];
      found.push_back(rank);
      EXPECT_EQ(blocks.block_of(rank), block);
      EXPECT_EQ(blocks.place_of(rank), place);
      for (size_t other = 0; other < blocks.count(); ++other)
        EXPECT_EQ(blocks.block_of(blocks.counterpart(rank, other)), other);
    }
  }
  std::sort(found.begin(), found.end());
  ASSERT_EQ(found.size(), ranks);
  for (size_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(found[rank], static_cast<int>(rank));
}

TEST(Blocks, AreOneOfAllRanks) {
  const Blocks blocks(3);
  EXPECT_EQ(blocks.count(), 1u);
  EXPECT_EQ(blocks.ranks(0), (std::vector<int>{0, 1, 2}));
  expect_each_rank_in_one(blocks, 3);
}

TEST(Blocks, FollowTheNumbersOfTheRanksWhereCachesAreUnknown) {
  EXPECT_EQ(blocks_of(Caches(9)), (std::vector<std::vector<int>>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}));
  for (size_t ranks = 1; ranks <= 300; ++ranks) {
    const Blocks blocks{Caches(ranks)};
    expect_each_rank_in_one(blocks, ranks);
    EXPECT_LE(lines_of(blocks), 2 * (root_of(ranks) - 1)) << ranks;
  }
  EXPECT_EQ(lines_of(Blocks(Caches(64))), 7u + 7u);
}

TEST(Blocks, AreTheRanksOfACache) {
  Caches caches;
  for (uint64_t rank = 0; rank < 64; ++rank) caches.push_back(100 + rank % 8);
  const Blocks blocks(caches);
  ASSERT_EQ(blocks.count(), 8u);
  for (int rank = 0; rank < 64; ++rank) EXPECT_EQ(blocks.block_of(rank), static_cast<size_t>(rank) % 8);
}

TEST(Blocks, CutTheRanksOfALargeCacheEvenly) {
  Caches caches(24, 1);
  caches.resize(48, 2);
  const Blocks blocks(caches);
  ASSERT_EQ(blocks.count(), 8u);
  for (int rank = 0; rank < 48; ++rank) EXPECT_EQ(blocks.block_of(rank), static_cast<size_t>(rank) / 6);
}

TEST(Blocks, JoinTheRanksOfSmallCaches) {
  Caches caches;
  for (uint64_t rank = 0; rank < 64; ++rank) caches.push_back(rank / 2);
  const Blocks blocks(caches);
  ASSERT_EQ(blocks.count(), 8u);
  for (int rank = 0; rank < 64; ++rank) EXPECT_EQ(blocks.block_of(rank), static_cast<size_t>(rank) / 8);
}

TEST(Blocks, AreFewAndSmallOnAnyMachine) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t ranks = 1 + random() % 200;
    const size_t most = 1 + random() % ranks;
    Caches caches;
    for (size_t rank = 0; rank < ranks; ++rank) caches.push_back(random() % most);
    const Blocks blocks(caches);
    expect_each_rank_in_one(blocks, ranks);
    EXPECT_LE(blocks.largest(), root_of(ranks));
    for (size_t block = 1; block < blocks.count(); ++block)
      EXPECT_GT(blocks.ranks(block - 1).size() + blocks.ranks(block).size(), root_of(ranks));
    EXPECT_LT(lines_of(blocks), 3 * root_of(ranks));
  }
}

}  // namespace
}  // namespace tarantella::collective
