#include "collective/kernels.h"

#include "collective/kernels_isa.h"

namespace tarantella::collective {
namespace {

using Sum = void (*)(DType, const std::byte* const*, size_t, std::byte*, size_t);

Sum best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return avx512::sum;
  if (__builtin_cpu_supports("avx2")) return avx2::sum;
#endif
  return baseline::sum;
}

}  // namespace

void sum(DType dtype, const std::byte* const* inputs, size_t n, std::byte* output, size_t count) {
  static const Sum chosen = best();
  chosen(dtype, inputs, n, output, count);
}

}  // namespace tarantella::collective
