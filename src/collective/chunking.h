#pragma once
// How the memory of a call is cut: into rounds, into chunks that fit into staging buffers, and into the slices that
// ranks reduce. Results do not depend on it: elements are reduced in rank order, wherever a cut lies.
// docs/performance.md counts what a call costs. Pure.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cache_line.h"
#include "base/dtype.h"
#include "base/status.h"

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
  const size_t cache_lines = (bytes + kCacheLine - 1) / kCacheLine;
  return {std::min(cache_lines * rank / size * kCacheLine, bytes),
          std::min(cache_lines * (rank + 1) / size * kCacheLine, bytes)};
}

/// The most bytes that each rank shows in one round: a multiple of all element sizes and of a cache line. Grows with
/// the number of ranks, so that the part of each stays worth a round, up to what a core's own cache holds.
constexpr size_t chunk_bytes(size_t ranks) {
  constexpr size_t kEach = size_t{256} * 1024;
  return std::min(ranks, size_t{4}) * kEach;
}

/// From this many bytes on, ranks reduce one slice each and copy the others' results, which is a second round. Below
/// it, each reduces everything, and reads less than 32 KiB of others' values.
constexpr size_t sliced_from(size_t ranks) {
  return ranks == 1 ? SIZE_MAX : std::max(size_t{32} * 1024 / ranks, size_t{64});
}

/// The most bytes for each rank in a round in which every rank shows other bytes to each: a multiple as chunk_bytes().
constexpr size_t bytes_per_rank(size_t ranks) {
  return std::max(chunk_bytes(ranks) / ranks / 64, size_t{1}) * 64;
}

/// The fewest rounds in which a rank can send counts[i] elements to rank i, if a round has `capacity` elements and
/// each rank gets the same share in every round. At least 1. `capacity` must not be less than the number of ranks.
inline size_t rounds_of_shares(std::span<const uint64_t> counts, size_t capacity) {
  const auto needed = [counts](size_t rounds) {
    uint64_t sum = 0;
    for (const uint64_t count : counts) sum += (count + rounds - 1) / rounds;
    return sum;
  };
  size_t rounds = std::max<size_t>((needed(1) + capacity - 1) / capacity, 1);
  while (needed(rounds) > capacity) ++rounds;
  return rounds;
}

/// Calls body(offset, bytes) for each chunk of at most `chunk` bytes, until one fails. Without data it calls body(0, 0)
/// once, since ranks wait for one another even then.
template <typename Body>
Status for_each_chunk(size_t bytes, size_t chunk, Body body) {
  size_t offset = 0;
  do {
    const size_t part = std::min(bytes - offset, chunk);
    TNT_RETURN_IF_ERROR(body(offset, part));
    offset += part;
  } while (offset < bytes);
  return {};
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
