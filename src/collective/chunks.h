#pragma once
// The caller's memory in chunks that fit on a stage, for all collectives.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "collective/slices.h"
#include "collective/stage.h"

namespace tarantella::collective {

/// Calls step(offset, bytes) for each chunk of at most `chunk` bytes, until one fails. Without data it calls step(0, 0)
/// once, since ranks meet even then.
template <typename Step>
Status for_each_chunk(size_t bytes, size_t chunk, Step step) {
  size_t offset = 0;
  do {
    const size_t part = std::min(bytes - offset, chunk);
    TNT_RETURN_IF_ERROR(step(offset, part));
    offset += part;
  } while (offset < bytes);
  return {};
}

/// `data` + `offset` bytes; nullptr if `data` is nullptr, which a rank without data may pass.
inline const std::byte* at(const void* data, size_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}
inline std::byte* at(void* data, size_t offset) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset;
}

inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

/// The byte ranges of consecutive parts with `counts` elements.
inline std::vector<Range> ranges_of(std::span<const uint64_t> counts, DType dtype) {
  std::vector<Range> ranges;
  size_t end = 0;
  for (const uint64_t count : counts) {
    const size_t begin = end;
    end += count * size_of(dtype);
    ranges.push_back({begin, end});
  }
  return ranges;
}

}  // namespace tarantella::collective
