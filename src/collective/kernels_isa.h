#pragma once
// kernels_isa.cpp is compiled once for each instruction set, into the namespace of its name; reduce() is that of
// kernels.h.

#include <cstddef>

#include "base/dtype.h"
#include "base/reduction.h"

namespace tarantella::collective {

namespace baseline {
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);
}
namespace avx2 {
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);
}
namespace avx512 {
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);
}

}  // namespace tarantella::collective
