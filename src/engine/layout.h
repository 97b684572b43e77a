#pragma once
// Where each tensor of a plan lies: which bucket, and where in a rank's input area and in the result area.

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

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

struct Bucket {
  DType dtype;
  size_t offset;  ///< bytes from the start of an area, a multiple of kAlignment
  size_t count;   ///< elements, the padding between tensors included
  size_t tensors;
};

struct Place {
  size_t bucket;
  size_t offset;  ///< bytes from the start of an area, a multiple of kAlignment
  size_t count;   ///< elements
};

struct Layout {
  static constexpr size_t kAlignment = 64;

  std::vector<Bucket> buckets;
  std::vector<Place> places;  ///< by tensor
  size_t bytes = 0;           ///< of an area
};

/// Fills buckets from the last tensor to the first, since the backward pass makes the last layer's gradients
/// first. A bucket is closed when it holds `threshold` bytes or the dtype changes; 0 gives every tensor its own.
Layout make_layout(const std::vector<TensorSpec>& tensors, size_t threshold);

}  // namespace tarantella::engine
