#pragma once
// Byte ranges, and which rank reduces which part.

#include <algorithm>
#include <cstddef>

#include "base/cache_line.h"

namespace tarantella::collective {

/// A range of bytes.
struct Range {
  size_t begin;
  size_t end;

  bool operator==(const Range&) const = default;
  size_t bytes() const { return end - begin; }
  /// The part in both ranges; empty if they do not overlap.
  Range intersect(Range other) const {
    const size_t from = std::max(begin, other.begin);
    return {from, std::max(from, std::min(end, other.end))};
  }
};

/// The part of `bytes` bytes that `rank` of `size` ranks reduces. It ends at cache lines, so that no two ranks write to
/// the same line.
inline Range slice_of(size_t bytes, size_t rank, size_t size) {
  const size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  return {std::min(lines * rank / size * kCacheLine, bytes),
          std::min(lines * (rank + 1) / size * kCacheLine, bytes)};
}

}  // namespace tarantella::collective
