#pragma once
// kernels_isa.cpp is compiled once for each instruction set, into the namespace of its name. The functions are those
// of kernels.h.

#include <cstddef>

#include "base/dtype.h"
#include "base/reduction.h"

#define TARANTELLA_KERNELS(isa)                                                                              \
  namespace isa {                                                                                            \
  void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output, \
              size_t count);                                                                                 \
  void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes);                                 \
  }

namespace tarantella::collective {

TARANTELLA_KERNELS(baseline)
TARANTELLA_KERNELS(avx2)
TARANTELLA_KERNELS(avx512)

}  // namespace tarantella::collective
