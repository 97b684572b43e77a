#include "engine/layout.h"

#include "base/status.h"

namespace tarantella::engine {

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
  Layout layout;
  layout.places.resize(tensors.size());
  for (size_t i = tensors.size(); i-- > 0;) {
    const TensorSpec& tensor = tensors[i];
    const size_t size = size_of(tensor.dtype);
    const bool fits = !layout.buckets.empty() && layout.buckets.back().dtype == tensor.dtype &&
                      layout.buckets.back().count * size < threshold;
    if (!fits) layout.buckets.push_back({tensor.dtype, layout.bytes, 0, 0});
    Bucket& bucket = layout.buckets.back();
    layout.places[i] = {layout.buckets.size() - 1, layout.bytes, tensor.count()};
    const size_t bytes =
        (tensor.count() * size + Layout::kAlignment - 1) / Layout::kAlignment * Layout::kAlignment;
    bucket.count += bytes / size;
    bucket.tensors += 1;
    layout.bytes += bytes;
  }
  return layout;
}

}  // namespace tarantella::engine
