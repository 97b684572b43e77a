#include "engine/layout.h"

#include <algorithm>
#include <cstdint>

#include "base/round.h"
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

Layout make_layout(const std::vector<TensorSpec>& tensors, size_t threshold, size_t split_bytes) {
  const auto rounded = [](size_t bytes) {
    return round_up(std::min(bytes, SIZE_MAX / 2), Layout::kAlignment);
  };
  threshold = rounded(threshold);
  split_bytes = std::max(threshold, rounded(split_bytes));
  Layout layout;
  layout.slots.resize(tensors.size());
  auto& buckets = layout.buckets;
  const auto add = [&](size_t tensor, size_t bytes) {
    buckets.back().bytes += bytes;
    buckets.back().tensors.push_back(tensor);
    layout.bytes += bytes;
  };
  bool open = false;  // the last bucket may take more tensors
  for (size_t i = tensors.size(); i-- > 0;) {
    const DType dtype = tensors[i].dtype;
    const size_t bytes = tensors[i].count() * size_of(dtype);
    const size_t padded = round_up(bytes, Layout::kAlignment);
    open = open && buckets.back().dtype == dtype && buckets.back().bytes + padded <= threshold;
    if (!open) buckets.push_back({{dtype, layout.bytes, 0}, {}});
    open = padded < threshold;
    layout.slots[i] = {layout.bytes, bytes, buckets.size() - 1, 0};
    const size_t max_bucket_bytes = threshold == 0 ? padded : split_bytes;
    add(i, std::min(padded, max_bucket_bytes));
    for (size_t done = max_bucket_bytes; done < padded; done += max_bucket_bytes) {
      buckets.push_back({{dtype, layout.bytes, 0}, {}});
      add(i, std::min(padded - done, max_bucket_bytes));
    }
    layout.slots[i].last_bucket = buckets.size() - 1;
  }
  return layout;
}

}  // namespace tarantella::engine
