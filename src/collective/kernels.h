#pragma once
// Reductions of the elements of several ranks, in rank order. The same inputs give the same bits on every rank and
// every machine of one architecture: vector lanes never mix, so the vector width does not matter.

#include <cstddef>

#include "base/dtype.h"
#include "base/reduction.h"

namespace tarantella::collective {

/// output[i] = ((inputs[0][i] + inputs[1][i]) + inputs[2][i]) + … for `count` elements of `dtype`; other reductions
/// likewise. can_reduce(dtype, reduction) must hold. Integers wrap around; float16 and bfloat16 are summed in float32
/// and rounded once. There are `n` >= 1 inputs; `output` may be one of them and must not overlap another. All pointers
/// are aligned for `dtype`. Thread-safe.
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);

}  // namespace tarantella::collective
