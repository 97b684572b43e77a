#include <gtest/gtest.h>

#include "engine/started_buckets.h"

namespace tarantella::engine {
namespace {

std::vector<size_t> all_of(const StartedBuckets& started) {
  std::vector<size_t> found;
  for (size_t b = started.first(); b != started.end(); b = started.next(b)) found.push_back(b);
  return found;
}

TEST(StartedBuckets, KeepsTheOrderInWhichBucketsWereAdded) {
  StartedBuckets started(5);
  EXPECT_EQ(all_of(started), std::vector<size_t>());
  for (const size_t bucket : {3u, 0u, 4u, 1u}) started.add(bucket);
  EXPECT_EQ(all_of(started), (std::vector<size_t>{3, 0, 4, 1}));
  started.remove(0);
  started.remove(3);
  started.remove(1);
  EXPECT_EQ(all_of(started), (std::vector<size_t>{4}));
  started.add(3);
  started.remove(4);
  started.add(4);
  EXPECT_EQ(all_of(started), (std::vector<size_t>{3, 4}));
}

TEST(StartedBuckets, ALookVisitsNoOtherBucketOfALargePlan) {
  constexpr size_t kBuckets = 28'000;  // 7 B parameters
  StartedBuckets started(kBuckets);
  size_t visited = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {  // each is summed while the next one fills
    started.add(bucket);
    visited += all_of(started).size();
    if (bucket > 0) started.remove(bucket - 1);
  }
  EXPECT_EQ(visited, 2 * kBuckets - 1);
}

}  // namespace
}  // namespace tarantella::engine
