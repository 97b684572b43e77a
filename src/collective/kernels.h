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

// The same in two stages, for ranks on several nodes: each node reduces its ranks to a partial result, which is not
// rounded, and the partials are reduced in the order of nodes. Rounding and the division of an average come last, so
// one partial of all ranks gives the bits of reduce().

/// The type of the elements of partial results of `dtype`.
constexpr DType partial_dtype(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}
/// As reduce(), but `output` has elements of partial_dtype(dtype) and is none of the inputs.
void reduce_to_partial(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n,
                       std::byte* output, size_t count);
/// Reduces `n` outputs of reduce_to_partial(), made of the values of `ranks` ranks in all, to elements of `dtype`.
void reduce_partials(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                     std::byte* output, size_t count);

}  // namespace tarantella::collective
