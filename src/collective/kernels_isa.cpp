// Nothing from the standard library is called here: its inline functions, compiled for a newer machine, could be
// the copy that the linker keeps for all.

#include "collective/kernels_isa.h"

namespace tarantella::collective::TARANTELLA_ISA {
namespace {

constexpr size_t kBlock = 2048;  // elements: the partial sums of a block stay in the nearest cache

/// Integers are summed as unsigned, so that overflow wraps and is not undefined.
template <typename T>
void sum_as(const std::byte* const* inputs, size_t n, std::byte* output, size_t count) {
  T* out = reinterpret_cast<T*>(output);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = begin + kBlock < count ? begin + kBlock : count;
    const T* first = reinterpret_cast<const T*>(inputs[0]);
    if (n == 1) {
      for (size_t i = begin; i < end; ++i) out[i] = first[i];
      continue;
    }
    const T* second = reinterpret_cast<const T*>(inputs[1]);
#pragma GCC ivdep
    for (size_t i = begin; i < end; ++i) out[i] = first[i] + second[i];
    for (size_t k = 2; k < n; ++k) {
      const T* next = reinterpret_cast<const T*>(inputs[k]);
#pragma GCC ivdep
      for (size_t i = begin; i < end; ++i) out[i] = out[i] + next[i];
    }
  }
}

}  // namespace

void sum(DType dtype, const std::byte* const* inputs, size_t n, std::byte* output, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return sum_as<float>(inputs, n, output, count);
    case DType::kFloat64:
      return sum_as<double>(inputs, n, output, count);
    case DType::kInt32:
      return sum_as<uint32_t>(inputs, n, output, count);
    case DType::kInt64:
      return sum_as<uint64_t>(inputs, n, output, count);
  }
}

}  // namespace tarantella::collective::TARANTELLA_ISA
