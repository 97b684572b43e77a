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

// The same in two parts, for ranks on several nodes: what each node reduces, and what is then reduced in the order of
// nodes. Rounding and the division of an average come last, so one part of all ranks gives the bits of reduce().

/// How the parts of a reduction of `dtype` are kept.
constexpr DType dtype_of_parts(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}
/// As reduce(), but `output` has elements of dtype_of_parts(dtype) and is none of the inputs.
void reduce_part(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n,
                 std::byte* output, size_t count);
/// Reduces `n` outputs of reduce_part(), made of the values of `ranks` ranks in all, to elements of `dtype`.
void reduce_parts(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                  std::byte* output, size_t count);

}  // namespace tarantella::collective
