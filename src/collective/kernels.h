#pragma once
// Sums of several ranks' elements in rank order. The same inputs give the same bits on every rank and machine of
// one instruction set: lanes never add across, so the vector width does not matter.

#include <cstddef>

#include "base/dtype.h"

namespace tarantella::collective {

/// output[i] = ((inputs[0][i] + inputs[1][i]) + inputs[2][i]) + … for `count` elements of `dtype`; integers wrap.
/// `n` >= 1 inputs; `output` may be inputs[0] or inputs[1], and must overlap no other. Any alignment of `dtype`.
void sum(DType dtype, const std::byte* const* inputs, size_t n, std::byte* output, size_t count);

}  // namespace tarantella::collective
