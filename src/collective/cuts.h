#pragma once
// How a blocking collective is cut into rounds, by the number of ranks. Results do not depend on it: elements are
// reduced in rank order, wherever a cut lies. docs/performance.md counts what a call costs. Pure.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tarantella::collective {

/// The most bytes that each rank shows in one round: a multiple of all element sizes and of a cache line. Grows with
/// the number of ranks, so that the part of each stays worth a meeting, up to what a core's own cache holds.
constexpr size_t chunk_bytes(size_t ranks) {
  constexpr size_t kEach = size_t{256} * 1024;
  return std::min(ranks, size_t{4}) * kEach;
}

/// From this many bytes on, ranks reduce one slice each and copy the others' results, which is a second meeting. Below
/// it, each reduces everything, and reads less than 32 KiB of others' values.
constexpr size_t sliced_from(size_t ranks) {
  return ranks == 1 ? SIZE_MAX : std::max(size_t{32} * 1024 / ranks, size_t{64});
}

/// The most bytes for each rank in a round in which every rank shows one piece to each: a multiple as chunk_bytes().
constexpr size_t piece_bytes(size_t ranks) {
  return std::max(chunk_bytes(ranks) / ranks / 64, size_t{1}) * 64;
}

/// The fewest rounds in which a rank can send counts[i] elements to rank i, if a round has room for `room` elements and
/// each rank gets the same share in every round. At least 1. `room` must not be less than the number of ranks.
inline size_t rounds_of_shares(std::span<const uint64_t> counts, size_t room) {
  const auto needed = [counts](size_t rounds) {
    uint64_t sum = 0;
    for (const uint64_t count : counts) sum += (count + rounds - 1) / rounds;
    return sum;
  };
  size_t rounds = std::max<size_t>((needed(1) + room - 1) / room, 1);
  while (needed(rounds) > room) ++rounds;
  return rounds;
}

}  // namespace tarantella::collective
