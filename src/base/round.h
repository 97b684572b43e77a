#pragma once

#include <cstddef>

namespace tarantella {

/// Rounds `value` up to a multiple of `unit`, which is not 0. The sum of the two must not overflow.
constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace tarantella
