#pragma once
// Where each tensor of a plan lies in the areas of a collective::BucketReduction, and in which buckets.

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "collective/bucket_reduction.h"

namespace tarantella::engine {

struct TensorSpec {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;

  /// The number of elements.
  size_t count() const;
  /// The tensor in error messages: "name" float32 [3, 5].
  std::string describe() const;
  bool operator==(const TensorSpec&) const = default;
};

struct Bucket : collective::Bucket {
  std::vector<size_t> tensors;  ///< the tensors that lie in it, wholly or in part
};

struct TensorSlot {
  size_t offset;        ///< bytes from the start of an area, a multiple of kAlignment
  size_t bytes;         ///< without padding
  size_t first_bucket;  ///< a tensor lies in the consecutive buckets first_bucket to last_bucket
  size_t last_bucket;
};

struct Layout {
  static constexpr size_t kAlignment = collective::Bucket::kAlignment;

  std::vector<Bucket> buckets;
  std::vector<TensorSlot> slots;  ///< one per tensor
  size_t bytes = 0;               ///< size of an area
};

/// Lays out tensors from the last to the first, since the backward pass computes the last layer's gradients first.
/// Consecutive tensors of one dtype share a bucket of up to `threshold` bytes (rounded up to kAlignment). A larger
/// tensor shares none of its buckets. It is split into parts of `split_bytes` bytes (at least `threshold`, rounded up
/// alike), so that one is summed while the next is copied. With a threshold of 0 each tensor has one bucket, unsplit.
/// Pure.
Layout make_layout(const std::vector<TensorSpec>& tensors, size_t threshold, size_t split_bytes = 0);

}  // namespace tarantella::engine
