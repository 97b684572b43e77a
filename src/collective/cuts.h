#pragma once
// How a blocking collective is cut into rounds, by the number of ranks. Results do not depend on it: elements are
// reduced in rank order, wherever a cut lies. docs/performance.md counts what a call costs. Pure.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tarantella::collective {

/// The most bytes that each rank shows in one round: a multiple of all element sizes and of a cache line. Grows with the
/// number of ranks, so that the part of each stays worth a meeting, up to what a core's own cache holds.
constexpr size_t chunk_bytes(size_t ranks) {
  constexpr size_t kEach = size_t{16} * 1024;
  return std::clamp(ranks * kEach, 8 * kEach, 64 * kEach);
}

/// From this many bytes on, ranks reduce one slice each and copy the others' results, which is a second meeting. Below
/// it, each reduces everything, and reads at most 64 KiB of others' values. Two ranks read no less in slices.
constexpr size_t sliced_from(size_t ranks) { return ranks <= 2 ? SIZE_MAX : size_t{64} * 1024 / ranks; }

}  // namespace tarantella::collective
