#pragma once
// Where each tensor of a plan lies in the areas of a collective::BucketReduction, and how they are cut into buckets.

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

  size_t count() const;
  /// "name" float32 [3, 5]
  std::string describe() const;
  bool operator==(const TensorSpec&) const = default;
};

struct Bucket : collective::Bucket {
  std::vector<size_t> tensors;  ///< those that lie in it, wholly or in part
};

struct Place {
  size_t offset;        ///< bytes from the start of an area, a multiple of kAlignment
  size_t bytes;         ///< without padding
  size_t first_bucket;  ///< a tensor lies in one or more buckets, which follow one another
  size_t last_bucket;
};

struct Layout {
  static constexpr size_t kAlignment = collective::Bucket::kAlignment;

  std::vector<Bucket> buckets;
  std::vector<Place> places;  ///< by tensor
  size_t bytes = 0;           ///< of an area
};

/// Lays tensors out from the last to the first, since the backward pass makes the last layer's gradients first.
/// Whole tensors of one dtype share a bucket of up to `threshold` bytes (rounded up to kAlignment); a larger tensor
/// has buckets of its own, so that its first part is summed while the rest is still being copied. No tensor shares one
/// bucket with some tensors and another with others. 0 gives every tensor one bucket.
Layout make_layout(const std::vector<TensorSpec>& tensors, size_t threshold);

}  // namespace tarantella::engine
