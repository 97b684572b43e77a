#pragma once
// Whether numbers are finite.

#include <cstddef>

#include "base/dtype.h"

namespace tarantella::engine {

/// Whether none of `count` numbers is infinite or NaN. True for types that have neither. Pure.
bool is_finite(const void* data, size_t count, DType dtype);

}  // namespace tarantella::engine
