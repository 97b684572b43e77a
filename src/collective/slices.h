#pragma once
// What the collectives share: which dtypes and reductions go together, and who reduces which part.

#include <algorithm>
#include <cstddef>

#include "base/dtype.h"
#include "base/reduction.h"
#include "base/status.h"

namespace tarantella::collective {

/// kInvalidArgument for a dtype or reduction that does not exist, or a reduction that the dtype does not have.
Status check(DType dtype, Reduction reduction);

/// A range of bytes.
struct Range {
  size_t begin;
  size_t end;

  bool operator==(const Range&) const = default;
  size_t bytes() const { return end - begin; }
  /// The part that both have; empty if there is none.
  Range meet(Range other) const {
    const size_t from = std::max(begin, other.begin);
    return {from, std::max(from, std::min(end, other.end))};
  }
};

/// The part of `bytes` that `rank` of `size` reduces; cut at cache lines, so that no two ranks write to one.
inline Range slice_of(size_t bytes, size_t rank, size_t size) {
  constexpr size_t kLine = 64;
  const size_t lines = (bytes + kLine - 1) / kLine;
  return {std::min(lines * rank / size * kLine, bytes), std::min(lines * (rank + 1) / size * kLine, bytes)};
}

}  // namespace tarantella::collective
