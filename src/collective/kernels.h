#pragma once
// Reductions of several ranks' elements in rank order. The same inputs give the same bits on every rank and machine of
// one instruction set: lanes never mix, so the vector width does not matter.

#include <cstddef>

#include "base/dtype.h"
#include "base/reduction.h"

namespace tarantella::collective {

/// output[i] = ((inputs[0][i] + inputs[1][i]) + inputs[2][i]) + … for `count` elements of `dtype`, or the like for
/// another reduction that can_reduce(). Integers wrap; float16 and bfloat16 are summed in float32 and rounded once.
/// `n` >= 1 inputs; `output` may be one of them, and must overlap no other. Any alignment of `dtype`.
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);

}  // namespace tarantella::collective
