#include <gtest/gtest.h>

#include "engine/under_way.h"

namespace tarantella::engine {
namespace {

std::vector<size_t> all_of(const UnderWay& under_way) {
  std::vector<size_t> found;
  for (size_t b = under_way.first(); b != under_way.end(); b = under_way.next(b)) found.push_back(b);
  return found;
}

TEST(UnderWay, KeepsTheOrderInWhichBucketsWereAdded) {
  UnderWay under_way(5);
  EXPECT_EQ(all_of(under_way), std::vector<size_t>());
  for (const size_t bucket : {3u, 0u, 4u, 1u}) under_way.add(bucket);
  EXPECT_EQ(all_of(under_way), (std::vector<size_t>{3, 0, 4, 1}));
  under_way.remove(0);
  under_way.remove(3);
  under_way.remove(1);
  EXPECT_EQ(all_of(under_way), (std::vector<size_t>{4}));
  under_way.add(3);
  under_way.remove(4);
  under_way.add(4);
  EXPECT_EQ(all_of(under_way), (std::vector<size_t>{3, 4}));
}

TEST(UnderWay, ALookVisitsNoOtherBucketOfALargePlan) {
  constexpr size_t kBuckets = 28'000;  // 7 B parameters
  UnderWay under_way(kBuckets);
  size_t visited = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {  // each is summed while the next one fills
    under_way.add(bucket);
    visited += all_of(under_way).size();
    if (bucket > 0) under_way.remove(bucket - 1);
  }
  EXPECT_EQ(visited, 2 * kBuckets - 1);
}

}  // namespace
}  // namespace tarantella::engine
