#pragma once

#include <cstddef>

namespace tarantella {

/// The least multiple of `unit` (not 0) that is not below `value`; the sum of the two must not overflow.
constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace tarantella
