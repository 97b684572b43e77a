#include <gtest/gtest.h>

#include <random>

#include "engine/layout.h"

namespace tarantella::engine {
namespace {

TensorSpec spec(int64_t count, DType dtype = DType::kFloat32) { return {"t", dtype, {count}}; }

TEST(Layout, GivesEveryTensorItsOwnBucketAtZero) {
  const Layout layout = make_layout({spec(3), spec(5), spec(7)}, 0);
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_EQ(layout.places[2].bucket, 0u) << "the last tensor's gradient is ready first";
  EXPECT_EQ(layout.places[0].bucket, 2u);
}

TEST(Layout, FusesUpToTheThreshold) {
  const Layout layout = make_layout({spec(16), spec(16), spec(16), spec(16)}, 128);
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_EQ(layout.buckets[0].tensors, 2u);
  EXPECT_EQ(layout.buckets[0].count, 32u);
}

TEST(Layout, DoesNotMixTypes) {
  const Layout layout = make_layout({spec(4), spec(4, DType::kFloat64), spec(4)}, 1 << 20);
  EXPECT_EQ(layout.buckets.size(), 3u);
}

TEST(Layout, TakesEmptyTensorsAndScalars) {
  const Layout layout = make_layout({spec(0), {"scalar", DType::kInt64, {}}}, 64);
  EXPECT_EQ(layout.places[0].count, 0u);
  EXPECT_EQ(layout.places[1].count, 1u);
}

TEST(Layout, NeverOverlapsAndAlwaysAligns) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<TensorSpec> tensors;
    for (size_t i = 0; i < 1 + random() % 20; ++i) {
      tensors.push_back(spec(random() % 200, random() % 2 == 0 ? DType::kFloat32 : DType::kInt64));
    }
    const Layout layout = make_layout(tensors, random() % 2000);
    size_t end = 0;
    for (const Bucket& bucket : layout.buckets) {
      EXPECT_EQ(bucket.offset, end);
      end = bucket.offset + bucket.count * size_of(bucket.dtype);
    }
    EXPECT_EQ(end, layout.bytes);
    for (size_t i = tensors.size(); i-- > 1;) {
      const size_t size = tensors[i].count() * size_of(tensors[i].dtype);
      EXPECT_EQ(layout.places[i].offset % Layout::kAlignment, 0u);
      EXPECT_LE(layout.places[i].offset + size, layout.places[i - 1].offset);
    }
  }
}

TEST(TensorSpec, DescribesItself) {
  const TensorSpec tensor{"conv/kernel", DType::kFloat64, {3, 5}};
  EXPECT_EQ(tensor.describe(), "\"conv/kernel\" float64 [3, 5]");
}

}  // namespace
}  // namespace tarantella::engine
