#pragma once
// kernels_isa.cpp is compiled once for each instruction set, into the namespace of its name.

#include <cstddef>

#include "base/dtype.h"

namespace tarantella::collective {

namespace baseline {
void sum(DType dtype, const std::byte* const* inputs, size_t n, std::byte* output, size_t count);
}
namespace avx2 {
void sum(DType dtype, const std::byte* const* inputs, size_t n, std::byte* output, size_t count);
}
namespace avx512 {
void sum(DType dtype, const std::byte* const* inputs, size_t n, std::byte* output, size_t count);
}

}  // namespace tarantella::collective
