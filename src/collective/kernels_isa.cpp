// This file calls nothing of the standard library: the linker keeps one copy of an inline function, which could be the
// one compiled here for a newer machine.

#include "collective/kernels_isa.h"

#include <type_traits>

namespace tarantella::collective::TARANTELLA_ISA {
namespace {

// How an element is stored, and the type in which it is reduced.

template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return __builtin_bit_cast(float, static_cast<uint32_t>(stored) << 16); }
  static Stored store(Value value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;  // to nearest, ties to even
    const uint32_t nan = bits >> 16 | 0x40u;
    return static_cast<Stored>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

struct Float16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) {
    const uint32_t magnitude = static_cast<uint32_t>(stored & 0x7fff) << 13;
    // the exponents' biases differ by 112; as a product it is exact for subnormal numbers, too
    auto bits = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) * 0x1p112F);
    bits |= (stored & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    return __builtin_bit_cast(float, bits | static_cast<uint32_t>(stored & 0x8000) << 16);
  }
  static Stored store(Value value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    // to nearest, ties to even; a carry out of the largest number gives infinity
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    // below 2^-14: the last bit of a float near 0.5 is worth a half's smallest number, so the sum rounds
    const auto aligned = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5F);
    uint32_t half = magnitude < (113u << 23) ? aligned - (126u << 23) : normal;
    half = magnitude >= (143u << 23) ? 0x7c00u : half;
    half = magnitude > 0x7f800000u ? 0x7e00u : half;
    return static_cast<Stored>((bits >> 16 & 0x8000u) | half);
  }
};

struct Sum {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // unsigned, so that overflow wraps and is not undefined
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Min {
  template <typename T>
  static T of(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <typename T>
  static T of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct And {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};

/// The reduction of `size` elements from `begin` on. All inputs are read before the output is written, which may be one
/// of them.
template <typename Format, typename Operation, bool kAverage>
[[gnu::always_inline]] inline void reduce_block(const std::byte* const* inputs, size_t n, std::byte* output,
                                                size_t begin, size_t size) {
  using Stored = typename Format::Stored;
  using Value = typename Format::Value;
  Value values[256 / sizeof(Value)];
  const auto* first = reinterpret_cast<const Stored*>(inputs[0]) + begin;
  for (size_t i = 0; i < size; ++i) values[i] = Format::load(first[i]);
  for (size_t k = 1; k < n; ++k) {
    const auto* next = reinterpret_cast<const Stored*>(inputs[k]) + begin;
    for (size_t i = 0; i < size; ++i) values[i] = Operation::of(values[i], Format::load(next[i]));
  }
  if constexpr (kAverage) {
    for (size_t i = 0; i < size; ++i) values[i] /= static_cast<Value>(n);
  }
  auto* out = reinterpret_cast<Stored*>(output) + begin;
  for (size_t i = 0; i < size; ++i) out[i] = Format::store(values[i]);
}

template <typename Format, typename Operation, bool kAverage = false>
void reduce_as(const std::byte* const* inputs, size_t n, std::byte* output, size_t count) {
  using Stored = typename Format::Stored;
  if (n == 2 && !kAverage) {
    const auto* a = reinterpret_cast<const Stored*>(inputs[0]);
    const auto* b = reinterpret_cast<const Stored*>(inputs[1]);
    auto* out = reinterpret_cast<Stored*>(output);
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i)
      out[i] = Format::store(Operation::of(Format::load(a[i]), Format::load(b[i])));
    return;
  }
  constexpr size_t kBlock = 256 / sizeof(typename Format::Value);
  size_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock)
    reduce_block<Format, Operation, kAverage>(inputs, n, output, begin, kBlock);
  reduce_block<Format, Operation, kAverage>(inputs, n, output, begin, count - begin);
}

template <typename Format>
void reduce_floats(Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
                   size_t count) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce_as<Format, Sum>(inputs, n, output, count);
    case Reduction::kAverage:
      return reduce_as<Format, Sum, true>(inputs, n, output, count);
    case Reduction::kMin:
      return reduce_as<Format, Min>(inputs, n, output, count);
    case Reduction::kMax:
      return reduce_as<Format, Max>(inputs, n, output, count);
    case Reduction::kAnd:
    case Reduction::kOr:
      return;  // can_reduce() is false
  }
}

template <typename T>
void reduce_integers(Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
                     size_t count) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce_as<Plain<T>, Sum>(inputs, n, output, count);
    case Reduction::kMin:
      return reduce_as<Plain<T>, Min>(inputs, n, output, count);
    case Reduction::kMax:
      return reduce_as<Plain<T>, Max>(inputs, n, output, count);
    case Reduction::kAnd:
      return reduce_as<Plain<T>, And>(inputs, n, output, count);
    case Reduction::kOr:
      return reduce_as<Plain<T>, Or>(inputs, n, output, count);
    case Reduction::kAverage:
      return;  // can_reduce() is false
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return reduce_floats<Plain<float>>(reduction, inputs, n, output, count);
    case DType::kFloat64:
      return reduce_floats<Plain<double>>(reduction, inputs, n, output, count);
    case DType::kFloat16:
      return reduce_floats<Float16>(reduction, inputs, n, output, count);
    case DType::kBFloat16:
      return reduce_floats<BFloat16>(reduction, inputs, n, output, count);
    case DType::kInt32:
      return reduce_integers<int32_t>(reduction, inputs, n, output, count);
    case DType::kInt64:
      return reduce_integers<int64_t>(reduction, inputs, n, output, count);
    case DType::kInt8:
      return reduce_integers<int8_t>(reduction, inputs, n, output, count);
    case DType::kInt16:
      return reduce_integers<int16_t>(reduction, inputs, n, output, count);
    case DType::kUInt16:
      return reduce_integers<uint16_t>(reduction, inputs, n, output, count);
    case DType::kUInt32:
      return reduce_integers<uint32_t>(reduction, inputs, n, output, count);
    case DType::kUInt64:
      return reduce_integers<uint64_t>(reduction, inputs, n, output, count);
    case DType::kBool:
    case DType::kUInt8:
      return reduce_integers<uint8_t>(reduction, inputs, n, output, count);
  }
}

}  // namespace tarantella::collective::TARANTELLA_ISA
