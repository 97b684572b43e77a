#pragma once
// kernels_isa.cpp is compiled once per instruction set, into a namespace of that name. Each function has the contract
// of kernels.h.

#include <cstddef>

#include "base/dtype.h"
#include "base/reduction.h"

namespace tarantella::collective {

namespace baseline {
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);
void reduce_to_partial(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n,
                       std::byte* output, size_t count);
void reduce_partials(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                     std::byte* output, size_t count);
}  // namespace baseline
namespace avx2 {
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);
void reduce_to_partial(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n,
                       std::byte* output, size_t count);
void reduce_partials(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                     std::byte* output, size_t count);
}  // namespace avx2
namespace avx512 {
void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count);
void reduce_to_partial(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n,
                       std::byte* output, size_t count);
void reduce_partials(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                     std::byte* output, size_t count);
}  // namespace avx512

}  // namespace tarantella::collective
