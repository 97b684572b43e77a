#include "collective/kernels.h"

#include "collective/kernels_isa.h"

namespace tarantella::collective {
namespace {

/// Sums are taken by any thread, and frameworks let theirs flush subnormal numbers to zero: within its scope, every
/// thread has the mode that a process starts with.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() { __builtin_ia32_ldmxcsr(0x1f80); }
  ~DefaultFloatMode() { __builtin_ia32_ldmxcsr(before_); }

 private:
  const unsigned before_ = __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
  DefaultFloatMode() : before_(__builtin_aarch64_get_fpcr()) { __builtin_aarch64_set_fpcr(0); }
  ~DefaultFloatMode() { __builtin_aarch64_set_fpcr(before_); }

 private:
  const unsigned before_;
#else
  DefaultFloatMode() = default;
#endif
 public:
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
};

struct Kernels {
  decltype(&baseline::reduce) reduce;
  decltype(&baseline::copy_past_caches) copy_past_caches;
};

const Kernels& best() {
  static const Kernels chosen = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return Kernels{avx512::reduce, avx512::copy_past_caches};
    if (__builtin_cpu_supports("avx2")) return Kernels{avx2::reduce, avx2::copy_past_caches};
#endif
    return Kernels{baseline::reduce, baseline::copy_past_caches};
  }();
  return chosen;
}

}  // namespace

void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count) {
  const DefaultFloatMode mode;
  best().reduce(dtype, reduction, inputs, n, output, count);
}

void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
  best().copy_past_caches(to, from, bytes);
}

}  // namespace tarantella::collective
