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

struct Kernels {
  decltype(&baseline::reduce) reduce;
  decltype(&baseline::reduce_to_partial) reduce_to_partial;
  decltype(&baseline::reduce_partials) reduce_partials;
};

Kernels best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f"))
    return {avx512::reduce, avx512::reduce_to_partial, avx512::reduce_partials};
  if (__builtin_cpu_supports("avx2")) return {avx2::reduce, avx2::reduce_to_partial, avx2::reduce_partials};
#endif
  return {baseline::reduce, baseline::reduce_to_partial, baseline::reduce_partials};
}

}  // namespace

void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count) {
  static const auto chosen = best().reduce;
  const DefaultFloatMode mode;
  chosen(dtype, reduction, inputs, n, output, count);
}

void reduce_to_partial(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n,
                       std::byte* output, size_t count) {
  static const auto chosen = best().reduce_to_partial;
  const DefaultFloatMode mode;
  chosen(dtype, reduction, inputs, n, output, count);
}

void reduce_partials(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                     std::byte* output, size_t count) {
  static const auto chosen = best().reduce_partials;
  const DefaultFloatMode mode;
  chosen(dtype, reduction, inputs, n, ranks, output, count);
}

}  // namespace tarantella::collective
