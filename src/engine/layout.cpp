#include "engine/layout.h"

#include <algorithm>

#include "base/status.h"

namespace tarantella::engine {
namespace {

size_t round_up(size_t bytes) {
  return (bytes + Layout::kAlignment - 1) / Layout::kAlignment * Layout::kAlignment;
}

}  // namespace

size_t TensorSpec::count() const {
  size_t product = 1;
  for (const int64_t extent : shape) product *= static_cast<size_t>(extent);
  return product;
}

std::string TensorSpec::describe() const {
  std::string extents;
  for (const int64_t extent : shape) extents += (extents.empty() ? "" : ", ") + std::to_string(extent);
  return text('"', name, "\" ", name_of(dtype), " [", extents, "]");
}

Layout make_layout(const std::vector<TensorSpec>& tensors, size_t threshold) {
  threshold = round_up(threshold);
  Layout layout;
  layout.places.resize(tensors.size());
  for (size_t i = tensors.size(); i-- > 0;) {
    const DType dtype = tensors[i].dtype;
    const size_t bytes = tensors[i].count() * size_of(dtype);
    auto& buckets = layout.buckets;
    const auto is_full = [&](const Bucket& bucket) {
      return bucket.bytes >= threshold || bucket.dtype != dtype;
    };
    Place& place = layout.places[i];
    size_t left = round_up(bytes);
    place = {layout.bytes, bytes, 0, 0};
    for (bool first = true; first || left > 0; first = false) {
      if (buckets.empty() || is_full(buckets.back())) buckets.push_back({dtype, layout.bytes, 0, {}});
      Bucket& bucket = buckets.back();
      const size_t part = threshold == 0 ? left : std::min(left, threshold - bucket.bytes);
      bucket.bytes += part;
      bucket.tensors.push_back(i);
      layout.bytes += part;
      left -= part;
      if (first) place.first_bucket = buckets.size() - 1;
    }
    place.last_bucket = buckets.size() - 1;
  }
  return layout;
}

}  // namespace tarantella::engine
