#pragma once
// How far apart two ranks write, so that neither takes a line from the other.

#include <cstddef>

namespace tarantella {

constexpr size_t kCacheLine = 64;  ///< bytes

}  // namespace tarantella
