#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/layout.h"

namespace tarantella::engine {
namespace {

TensorSpec spec(int64_t count, DType dtype = DType::kFloat32) { return {"t", dtype, {count}}; }

std::vector<size_t> tensors_of(const Layout& layout, size_t bucket) { return layout.buckets[bucket].tensors; }

TEST(Layout, GivesEveryTensorItsOwnBucketAtZero) {
  const Layout layout = make_layout({spec(3), spec(5000), spec(7)}, 0);
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_EQ(tensors_of(layout, 0), std::vector<size_t>{2}) << "the last tensor's gradient is ready first";
  EXPECT_EQ(tensors_of(layout, 2), std::vector<size_t>{0});
}

TEST(Layout, FusesSmallTensors) {
  const Layout layout = make_layout({spec(16), spec(16), spec(16), spec(16)}, 128);
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_EQ(tensors_of(layout, 0), (std::vector<size_t>{3, 2}));
  EXPECT_EQ(layout.buckets[0].bytes, 128u);
}

TEST(Layout, CutsLargeTensorsIntoBucketsOfTheirOwn) {
  const Layout layout = make_layout({spec(16), spec(80), spec(16)}, 128);  // 64, 320 and 64 bytes
  ASSERT_EQ(layout.buckets.size(), 5u);
  EXPECT_EQ(tensors_of(layout, 0), std::vector<size_t>{2});
  EXPECT_EQ(layout.slots[1].first_bucket, 1u);
  EXPECT_EQ(layout.slots[1].last_bucket, 3u);
  EXPECT_EQ(layout.buckets[3].bytes, 64u);
  EXPECT_EQ(tensors_of(layout, 4), std::vector<size_t>{0});
}

TEST(Layout, CutsLargeTensorsIntoLargerPiecesThanItFuses) {
  const Layout layout =
      make_layout({spec(80), spec(40), spec(16), spec(16)}, 128, 250);  // 320, 192, 64 and 64 bytes
  ASSERT_EQ(layout.buckets.size(), 4u);
  EXPECT_EQ(tensors_of(layout, 0), (std::vector<size_t>{3, 2}));
  EXPECT_EQ(layout.buckets[1].bytes, 192u) << "whole";
  EXPECT_EQ(layout.buckets[2].bytes, 256u);
  EXPECT_EQ(layout.buckets[3].bytes, 64u);
  EXPECT_EQ(make_layout({spec(80)}, 128, 64).buckets.size(), 3u)
      << "a piece is no smaller than the threshold";
  EXPECT_EQ(make_layout({spec(80)}, 0, 64).buckets.size(), 1u);
}

TEST(Layout, NeverLinksTwoBucketsThroughASharedTensor) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<TensorSpec> tensors(1 + random() % 20);
    for (TensorSpec& tensor : tensors) tensor = spec(static_cast<int64_t>(random() % 900));
    const Layout layout = make_layout(tensors, random() % 1500, random() % 3000);
    for (const TensorSlot& slot : layout.slots) {
      if (slot.first_bucket == slot.last_bucket) continue;
      for (size_t b = slot.first_bucket; b <= slot.last_bucket; ++b)
        EXPECT_EQ(tensors_of(layout, b).size(), 1u);
    }
  }
}

TEST(Layout, FusesAllTensorsBelowAnUnlimitedThreshold) {
  EXPECT_EQ(make_layout({spec(1), spec(2)}, SIZE_MAX).buckets.size(), 1u);
}

TEST(Layout, DoesNotMixTypes) {
  const Layout layout = make_layout({spec(4), spec(4, DType::kFloat64), spec(4)}, 1 << 20);
  EXPECT_EQ(layout.buckets.size(), 3u);
}

TEST(Layout, TakesEmptyTensorsAndScalars) {
  const Layout layout = make_layout({spec(0), {"scalar", DType::kInt64, {}}}, 64);
  EXPECT_EQ(layout.slots[0].bytes, 0u);
  EXPECT_EQ(layout.slots[1].bytes, 8u);
  EXPECT_EQ(tensors_of(layout, layout.slots[0].first_bucket).back(), 0u);
}

TEST(Layout, PutsEveryByteOfEveryTensorIntoItsBuckets) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<TensorSpec> tensors(1 + random() % 20);
    for (TensorSpec& tensor : tensors) {
      tensor =
          spec(static_cast<int64_t>(random() % 600), random() % 3 == 0 ? DType::kInt64 : DType::kFloat32);
    }
    const size_t threshold = random() % 1500;
    const Layout layout = make_layout(tensors, threshold);
    size_t end = 0;
    for (const Bucket& bucket : layout.buckets) {
      EXPECT_EQ(bucket.offset, end);
      EXPECT_EQ(bucket.bytes % Layout::kAlignment, 0u);
      if (threshold != 0) {
        EXPECT_LT(bucket.bytes, threshold + Layout::kAlignment);
      }
      end += bucket.bytes;
    }
    EXPECT_EQ(end, layout.bytes);
    size_t free_from = 0;
    for (size_t i = tensors.size(); i-- > 0;) {
      const TensorSlot& slot = layout.slots[i];
      EXPECT_EQ(slot.bytes, tensors[i].count() * size_of(tensors[i].dtype));
      EXPECT_EQ(slot.offset % Layout::kAlignment, 0u);
      EXPECT_GE(slot.offset, free_from);
      free_from = slot.offset + slot.bytes;
      EXPECT_GE(slot.offset, layout.buckets[slot.first_bucket].offset);
      const Bucket& last = layout.buckets[slot.last_bucket];
      EXPECT_LE(free_from, last.offset + last.bytes);
      for (size_t b = 0; b < layout.buckets.size(); ++b) {
        const auto& members = tensors_of(layout, b);
        const bool listed = std::find(members.begin(), members.end(), i) != members.end();
        EXPECT_EQ(listed, b >= slot.first_bucket && b <= slot.last_bucket);
        if (listed) {
          EXPECT_EQ(layout.buckets[b].dtype, tensors[i].dtype);
        }
      }
    }
  }
}

TEST(TensorSpec, DescribesItself) {
  const TensorSpec tensor{"conv/kernel", DType::kFloat64, {3, 5}};
  EXPECT_EQ(tensor.describe(), "\"conv/kernel\" float64 [3, 5]");
}

}  // namespace
}  // namespace tarantella::engine
