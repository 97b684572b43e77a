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

/// The reduction of `size` elements from `begin` on; an average is divided by `ranks`. All inputs are read before the
/// output is written, which may be one of them if it has their format.
template <typename Format, typename Out, typename Operation, bool kAverage>
[[gnu::always_inline]] inline void reduce_block(const std::byte* const* inputs, size_t n, size_t ranks,
                                                std::byte* output, size_t begin, size_t size) {
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
    for (size_t i = 0; i < size; ++i) values[i] /= static_cast<Value>(ranks);
  }
  auto* out = reinterpret_cast<typename Out::Stored*>(output) + begin;
  for (size_t i = 0; i < size; ++i) out[i] = Out::store(values[i]);
}

#if defined(__AVX512F__)
constexpr size_t kRegister = 64;
#elif defined(__AVX2__)
constexpr size_t kRegister = 32;
#else
constexpr size_t kRegister = 16;
#endif
constexpr size_t kStrip = 8 * kRegister;  // bytes whose sums stay in registers
constexpr size_t kBlock = 4096;           // bytes whose sums stay in the nearest cache
constexpr size_t kTogether = 8;           // inputs at a time: hardware prefetches few streams

/// Adds a strip of inputs[first] to inputs[last - 1], each from its element `begin` on, to `sums`; stores it at `to`.
template <typename T>
[[gnu::always_inline]] inline void add_strip(const T* sums, const std::byte* const* inputs, size_t first,
                                             size_t last, size_t begin, T* to) {
  using Vector [[gnu::vector_size(kRegister), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
  constexpr size_t kVectors = kStrip / kRegister;
  Vector values[kVectors];
#pragma GCC unroll 8
  for (size_t i = 0; i < kVectors; ++i) values[i] = reinterpret_cast<const Vector*>(sums)[i];
  for (size_t k = first; k < last; ++k) {
    const auto* next = reinterpret_cast<const Vector*>(reinterpret_cast<const T*>(inputs[k]) + begin);
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) values[i] += next[i];
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kVectors; ++i) reinterpret_cast<Vector*>(to)[i] = values[i];
}

/// Sums many inputs in blocks, as far as there are whole strips. Returns the number of elements summed.
template <typename T, bool kAverage>
size_t sum_strips(const std::byte* const* inputs, size_t n, size_t ranks, std::byte* output, size_t count) {
  constexpr size_t kElements = kStrip / sizeof(T);
  alignas(64) T block[kBlock / sizeof(T)];
  auto* const out = reinterpret_cast<T*>(output);
  const size_t whole = count / kElements * kElements;
  for (size_t begin = 0; begin < whole; begin += kBlock / sizeof(T)) {
    const size_t size = whole - begin < kBlock / sizeof(T) ? whole - begin : kBlock / sizeof(T);
    for (size_t first = 0; first < n; first += kTogether) {
      const size_t last = n - first < kTogether ? n : first + kTogether;
      for (size_t i = 0; i < size; i += kElements) {
        const T* const sums = first == 0 ? reinterpret_cast<const T*>(inputs[0]) + begin + i : block + i;
        T* const to = last == n ? out + begin + i : block + i;
        add_strip(sums, inputs, first == 0 ? 1 : first, last, begin + i, to);
      }
    }
    if constexpr (kAverage) {
      for (size_t i = begin; i < begin + size; ++i) out[i] /= static_cast<T>(ranks);
    }
  }
  return whole;
}

template <typename Format, typename Operation, bool kAverage = false, typename Out = Format>
void reduce_as(const std::byte* const* inputs, size_t n, size_t ranks, std::byte* output, size_t count) {
  using Stored = typename Format::Stored;
  if (n == 2 && !kAverage) {
    const auto* a = reinterpret_cast<const Stored*>(inputs[0]);
    const auto* b = reinterpret_cast<const Stored*>(inputs[1]);
    auto* out = reinterpret_cast<typename Out::Stored*>(output);
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i)
      out[i] = Out::store(Operation::of(Format::load(a[i]), Format::load(b[i])));
    return;
  }
  size_t begin = 0;
  if constexpr (std::is_floating_point_v<Stored> && std::is_same_v<Operation, Sum> &&
                std::is_same_v<Out, Format>) {
    if (n >= kTogether) begin = sum_strips<Stored, kAverage>(inputs, n, ranks, output, count);
  }
  constexpr size_t kElements = 256 / sizeof(typename Format::Value);
  for (; begin + kElements <= count; begin += kElements)
    reduce_block<Format, Out, Operation, kAverage>(inputs, n, ranks, output, begin, kElements);
  reduce_block<Format, Out, Operation, kAverage>(inputs, n, ranks, output, begin, count - begin);
}

/// `Out` has the values of `Format`.
template <typename Format, typename Out = Format>
void reduce_floats(Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                   std::byte* output, size_t count) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce_as<Format, Sum, false, Out>(inputs, n, ranks, output, count);
    case Reduction::kAverage:
      return reduce_as<Format, Sum, true, Out>(inputs, n, ranks, output, count);
    case Reduction::kMin:
      return reduce_as<Format, Min, false, Out>(inputs, n, ranks, output, count);
    case Reduction::kMax:
      return reduce_as<Format, Max, false, Out>(inputs, n, ranks, output, count);
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
      return reduce_as<Plain<T>, Sum>(inputs, n, n, output, count);
    case Reduction::kMin:
      return reduce_as<Plain<T>, Min>(inputs, n, n, output, count);
    case Reduction::kMax:
      return reduce_as<Plain<T>, Max>(inputs, n, n, output, count);
    case Reduction::kAnd:
      return reduce_as<Plain<T>, And>(inputs, n, n, output, count);
    case Reduction::kOr:
      return reduce_as<Plain<T>, Or>(inputs, n, n, output, count);
    case Reduction::kAverage:
      return;  // can_reduce() is false
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, std::byte* output,
            size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return reduce_floats<Plain<float>>(reduction, inputs, n, n, output, count);
    case DType::kFloat64:
      return reduce_floats<Plain<double>>(reduction, inputs, n, n, output, count);
    case DType::kFloat16:
      return reduce_floats<Float16>(reduction, inputs, n, n, output, count);
    case DType::kBFloat16:
      return reduce_floats<BFloat16>(reduction, inputs, n, n, output, count);
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

void reduce_to_partial(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n,
                       std::byte* output, size_t count) {
  const Reduction partial = reduction == Reduction::kAverage ? Reduction::kSum : reduction;
  if (dtype == DType::kFloat16)
    return reduce_floats<Float16, Plain<float>>(partial, inputs, n, n, output, count);
  if (dtype == DType::kBFloat16)
    return reduce_floats<BFloat16, Plain<float>>(partial, inputs, n, n, output, count);
  reduce(dtype, partial, inputs, n, output, count);
}

void reduce_partials(DType dtype, Reduction reduction, const std::byte* const* inputs, size_t n, size_t ranks,
                     std::byte* output, size_t count) {
  switch (dtype) {
    case DType::kFloat16:
      return reduce_floats<Plain<float>, Float16>(reduction, inputs, n, ranks, output, count);
    case DType::kBFloat16:
      return reduce_floats<Plain<float>, BFloat16>(reduction, inputs, n, ranks, output, count);
    case DType::kFloat32:
      return reduce_floats<Plain<float>>(reduction, inputs, n, ranks, output, count);
    case DType::kFloat64:
      return reduce_floats<Plain<double>>(reduction, inputs, n, ranks, output, count);
    default:  // integers have no average
      return reduce(dtype, reduction, inputs, n, output, count);
  }
}

}  // namespace tarantella::collective::TARANTELLA_ISA
