#include "collective/kernels.h"

#include "collective/kernels_isa.h"

namespace tarantella::collective {
namespace {

/// Gives the thread the floating-point mode with which a process starts, within its scope. Any thread may reduce, and
/// frameworks let theirs flush subnormal numbers to zero.
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

decltype(&baseline::reduce) best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return avx512::reduce;
  if (__builtin_cpu_supports("avx2")) return avx2::reduce;
#endif
  return baseline::reduce;
}

}  // namespace

void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count) {
  static const auto chosen = best();
  const DefaultFloatMode mode;
  chosen(dtype, reduction, inputs, n, output, count);
}

}  // namespace tarantella::collective
