#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collective/kernels.h"
#include "collective/kernels_isa.h"

namespace tarantella::collective {
namespace {

template <typename T>
struct Of;
template <>
struct Of<float> {
  static constexpr DType kDType = DType::kFloat32;
};
template <>
struct Of<double> {
  static constexpr DType kDType = DType::kFloat64;
};
template <>
struct Of<int32_t> {
  static constexpr DType kDType = DType::kInt32;
};
template <>
struct Of<int64_t> {
  static constexpr DType kDType = DType::kInt64;
};
template <>
struct Of<int8_t> {
  static constexpr DType kDType = DType::kInt8;
};
template <>
struct Of<int16_t> {
  static constexpr DType kDType = DType::kInt16;
};
template <>
struct Of<uint8_t> {
  static constexpr DType kDType = DType::kUInt8;
};
template <>
struct Of<uint16_t> {
  static constexpr DType kDType = DType::kUInt16;
};
template <>
struct Of<uint32_t> {
  static constexpr DType kDType = DType::kUInt32;
};
template <>
struct Of<uint64_t> {
  static constexpr DType kDType = DType::kUInt64;
};

template <typename T>
class Kernels : public testing::Test {
 protected:
  static std::vector<std::vector<T>> random_inputs(size_t n, size_t count) {
    std::mt19937_64 generator(n * 1000 + count);
    std::vector<std::vector<T>> inputs(n, std::vector<T>(count));
    for (auto& input : inputs) {
      for (T& value : input) {
        if constexpr (std::is_integral_v<T>) {
          value = static_cast<T>(generator());  // also those whose sums wrap
        } else {
          value = static_cast<T>(static_cast<double>(generator() % 2'000'000) / 3.0);
        }
      }
    }
    return inputs;
  }

  static std::vector<T> expected(const std::vector<std::vector<T>>& inputs) {
    std::vector<T> sums = inputs[0];
    for (size_t k = 1; k < inputs.size(); ++k) {
      for (size_t i = 0; i < sums.size(); ++i) {
        if constexpr (std::is_integral_v<T>) {
          using U = std::make_unsigned_t<T>;
          sums[i] = static_cast<T>(static_cast<U>(sums[i]) + static_cast<U>(inputs[k][i]));
        } else {
          sums[i] = sums[i] + inputs[k][i];
        }
      }
    }
    return sums;
  }

  static std::vector<const std::byte*> pointers(const std::vector<std::vector<T>>& inputs) {
    std::vector<const std::byte*> all;
    for (const auto& input : inputs) all.push_back(reinterpret_cast<const std::byte*>(input.data()));
    return all;
  }
};

using Types =
    testing::Types<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(Kernels, Types);

TYPED_TEST(Kernels, SumInRankOrderToTheBit) {
  for (const size_t n : {1, 2, 3, 4, 7, 8, 9, 16, 17, 64}) {
    for (const size_t count : {0, 1, 7, 16, 127, 128, 129, 2047, 2048, 2049, 10000}) {
      const auto inputs = this->random_inputs(n, count);
      std::vector<TypeParam> output(count);
      reduce(Of<TypeParam>::kDType, Reduction::kSum, this->pointers(inputs).data(), n,
             reinterpret_cast<std::byte*>(output.data()), count);
      const auto right = this->expected(inputs);
      ASSERT_TRUE(count == 0 || std::memcmp(output.data(), right.data(), count * sizeof(TypeParam)) == 0)
          << n << " inputs, " << count << " elements";
    }
  }
}

TYPED_TEST(Kernels, EveryInstructionSetGivesTheSameBits) {
  constexpr size_t kCount = 5003;
  const auto check = [&](auto kernel) {
    for (const size_t n : {5, 20}) {
      const auto inputs = this->random_inputs(n, kCount);
      const auto right = this->expected(inputs);
      std::vector<TypeParam> output(kCount);
      kernel(Of<TypeParam>::kDType, Reduction::kSum, this->pointers(inputs).data(), n,
             reinterpret_cast<std::byte*>(output.data()), kCount);
      EXPECT_EQ(std::memcmp(output.data(), right.data(), kCount * sizeof(TypeParam)), 0) << n << " inputs";
    }
  };
  check(baseline::reduce);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) check(avx2::reduce);
  if (__builtin_cpu_supports("avx512f")) check(avx512::reduce);
#endif
}

TYPED_TEST(Kernels, AverageManyFloats) {
  if constexpr (std::is_floating_point_v<TypeParam>) {
    constexpr size_t kCount = 5003;
    const auto inputs = this->random_inputs(20, kCount);
    auto right = this->expected(inputs);
    for (TypeParam& value : right) value /= 20;
    std::vector<TypeParam> output(kCount);
    reduce(Of<TypeParam>::kDType, Reduction::kAverage, this->pointers(inputs).data(), 20,
           reinterpret_cast<std::byte*>(output.data()), kCount);
    EXPECT_EQ(output, right);
  }
}

TYPED_TEST(Kernels, MayReduceIntoAnyInput) {
  for (const size_t n : {2, 4, 18}) {
    for (size_t into = 0; into < n; ++into) {
      auto inputs = this->random_inputs(n, 3000);
      const auto right = this->expected(inputs);
      reduce(Of<TypeParam>::kDType, Reduction::kSum, this->pointers(inputs).data(), n,
             reinterpret_cast<std::byte*>(inputs[into].data()), 3000);
      EXPECT_EQ(inputs[into], right);
    }
  }
}

TYPED_TEST(Kernels, TakeTheLeastAndTheMost) {
  for (const size_t n : {1, 2, 5}) {
    const auto inputs = this->random_inputs(n, 333);
    for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
      std::vector<TypeParam> output(333);
      reduce(Of<TypeParam>::kDType, reduction, this->pointers(inputs).data(), n,
             reinterpret_cast<std::byte*>(output.data()), output.size());
      for (size_t i = 0; i < output.size(); ++i) {
        TypeParam right = inputs[0][i];
        for (const auto& input : inputs)
          right = reduction == Reduction::kMin ? std::min(right, input[i]) : std::max(right, input[i]);
        ASSERT_EQ(output[i], right);
      }
    }
  }
}

/// The reduction of single elements.
template <typename T>
T reduced(DType dtype, Reduction reduction, const std::vector<T>& elements) {
  std::vector<const std::byte*> inputs;
  for (const T& element : elements) inputs.push_back(reinterpret_cast<const std::byte*>(&element));
  T output{};
  reduce(dtype, reduction, inputs.data(), inputs.size(), reinterpret_cast<std::byte*>(&output), 1);
  return output;
}

TEST(KernelsOfIntegers, CombineBits) {
  EXPECT_EQ((reduced<int32_t>(DType::kInt32, Reduction::kAnd, {0b1101, 0b0111, -1})), 0b0101);
  EXPECT_EQ((reduced<int64_t>(DType::kInt64, Reduction::kOr, {1LL << 40, 2})), (1LL << 40) + 2);
  EXPECT_EQ((reduced<uint8_t>(DType::kBool, Reduction::kAnd, {1, 0, 1})), 0);
  EXPECT_EQ((reduced<uint8_t>(DType::kBool, Reduction::kOr, {0, 1, 0})), 1);
  EXPECT_EQ((reduced<uint8_t>(DType::kUInt8, Reduction::kSum, {200, 100})), 44);
  EXPECT_EQ((reduced<int8_t>(DType::kInt8, Reduction::kAnd, {-1, 0b0110})), 0b0110);
  EXPECT_EQ((reduced<uint64_t>(DType::kUInt64, Reduction::kOr, {1ULL << 63, 1})), (1ULL << 63) + 1);
}

TEST(KernelsOfFloats, AverageTheRanks) {
  EXPECT_EQ((reduced<float>(DType::kFloat32, Reduction::kAverage, {1, 2, 5})), 8.0F / 3);
  EXPECT_EQ((reduced<double>(DType::kFloat64, Reduction::kAverage, {1, 2})), 1.5);
}

TEST(KernelsOfFloats, GiveNanIfAnyRankHasOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kFloat32, reduction, {1, nan, 2})));
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kFloat32, reduction, {nan, 1})));
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kFloat32, reduction, {1, nan})));
  }
}

#if defined(__FLT16_MAX__)
using Half = _Float16;  // the compiler's own, in software where the machine has none

/// Every half, summed with 0: to and from float32 without a loss.
TEST(KernelsOfHalves, KeepEveryFloat16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    const uint16_t sum = reduced<uint16_t>(DType::kFloat16, Reduction::kMax, {stored});
    const bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    ASSERT_EQ(sum, nan ? (bits & 0x8000) | 0x7e00 : bits);
  }
}

struct Float16 {
  static constexpr DType kDType = DType::kFloat16;
  static float value(uint16_t bits) { return static_cast<float>(std::bit_cast<Half>(bits)); }
  static uint16_t rounded(float sum) { return std::bit_cast<uint16_t>(static_cast<Half>(sum)); }
  static uint16_t random(std::mt19937& generator) { return static_cast<uint16_t>(generator()); }
};
#endif

struct BFloat16 {
  static constexpr DType kDType = DType::kBFloat16;
  static float value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  /// The nearest of the two bfloat16 around a float, the even one where both are as near, in double.
  static uint16_t rounded(float sum) {
    const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(sum) >> 16);
    const auto above = static_cast<uint16_t>(below + 1);
    const auto distance = [sum](uint16_t bits) { return std::abs(static_cast<double>(value(bits)) - sum); };
    if (distance(below) != distance(above)) return distance(below) < distance(above) ? below : above;
    return below % 2 == 0 ? below : above;
  }
  /// No NaN, no infinity, and small enough that no sum overflows.
  static uint16_t random(std::mt19937& generator) {
    const auto bits = static_cast<uint32_t>(generator());
    return static_cast<uint16_t>((bits & 0xffff) % 0x7000 | (bits >> 16 & 0x8000));
  }
};

template <typename T>
class KernelsOfShortFloats : public testing::Test {};

#if defined(__FLT16_MAX__)
using ShortFloats = testing::Types<Float16, BFloat16>;
#else
using ShortFloats = testing::Types<BFloat16>;
#endif
TYPED_TEST_SUITE(KernelsOfShortFloats, ShortFloats);

TYPED_TEST(KernelsOfShortFloats, SumInFloat32AndRoundOnce) {
  std::mt19937 generator(1);
  for (int round = 0; round < 200'000; ++round) {
    std::vector<uint16_t> terms(2 + static_cast<size_t>(round % 2));
    float total = -0.0F;  // which, unlike 0, leaves -0 as it is
    for (uint16_t& term : terms) {
      term = TypeParam::random(generator);
      total += TypeParam::value(term);
    }
    const auto sum = reduced<uint16_t>(TypeParam::kDType, Reduction::kSum, terms);
    if (std::isnan(total)) {
      ASSERT_TRUE(std::isnan(TypeParam::value(sum)));
    } else {
      ASSERT_EQ(sum, TypeParam::rounded(total)) << testing::PrintToString(terms);
    }
  }
}

TEST(KernelsOfHalves, KeepTheNanOfABFloat16) {
  EXPECT_EQ(reduced<uint16_t>(DType::kBFloat16, Reduction::kSum, {0x7f81, 0x3f80}), 0x7fc1);
}

/// Every dtype with every reduction that it has.
std::vector<std::pair<DType, Reduction>> all_kinds() {
  std::vector<std::pair<DType, Reduction>> kinds;
  for (uint32_t d = 1; is_valid(static_cast<DType>(d)); ++d) {
    for (uint32_t r = 1; is_valid(static_cast<Reduction>(r)); ++r) {
      if (can_reduce(static_cast<DType>(d), static_cast<Reduction>(r)))
        kinds.emplace_back(static_cast<DType>(d), static_cast<Reduction>(r));
    }
  }
  return kinds;
}

TEST(KernelsOfParts, OnePartOfAllRanksGivesTheBitsOfAll) {
  constexpr size_t kCount = 1003;
  std::mt19937_64 generator(5);
  for (const auto& [dtype, reduction] : all_kinds()) {
    for (const size_t n : {1, 2, 5}) {
      std::vector<std::vector<std::byte>> inputs(n, std::vector<std::byte>(kCount * size_of(dtype)));
      std::vector<const std::byte*> pointers;
      for (auto& input : inputs) {
        for (std::byte& each : input)
          each = static_cast<std::byte>(generator() % 64);  // finite in all dtypes
        pointers.push_back(input.data());
      }
      std::vector<std::byte> right(kCount * size_of(dtype));
      reduce(dtype, reduction, pointers.data(), n, right.data(), kCount);
      const auto check = [&](auto to_partial, auto from_partials) {
        std::vector<std::byte> partial(kCount * size_of(partial_dtype(dtype)));
        std::vector<std::byte> output(right.size());
        to_partial(dtype, reduction, pointers.data(), n, partial.data(), kCount);
        const std::byte* const partials = partial.data();
        from_partials(dtype, reduction, &partials, size_t{1}, n, output.data(), kCount);
        EXPECT_TRUE(output == right) << name_of(dtype) << ", " << name_of(reduction) << " of " << n;
      };
      check(reduce_to_partial, reduce_partials);
      check(baseline::reduce_to_partial, baseline::reduce_partials);
#if defined(__x86_64__)
      if (__builtin_cpu_supports("avx2")) check(avx2::reduce_to_partial, avx2::reduce_partials);
      if (__builtin_cpu_supports("avx512f")) check(avx512::reduce_to_partial, avx512::reduce_partials);
#endif
    }
  }
}

TEST(KernelsOfParts, RoundOnceAndDivideByAllRanks) {
  // 256 + 1 is no bfloat16: rounded after the first part, the 1 would be lost
  const std::vector<std::vector<uint16_t>> nodes = {{0x4380, 0x3f80}, {0x3f80}};
  for (const auto& [reduction, right] :
       {std::pair{Reduction::kSum, uint16_t{0x4381}}, {Reduction::kAverage, uint16_t{0x42ac}}}) {
    std::vector<float> partials(2);
    std::vector<const std::byte*> pointers;
    for (size_t node = 0; node < nodes.size(); ++node) {
      std::vector<const std::byte*> values;
      for (const uint16_t& each : nodes[node]) values.push_back(reinterpret_cast<const std::byte*>(&each));
      auto* const partial = reinterpret_cast<std::byte*>(&partials[node]);
      reduce_to_partial(DType::kBFloat16, reduction, values.data(), values.size(), partial, 1);
      pointers.push_back(partial);
    }
    uint16_t result = 0;
    reduce_partials(DType::kBFloat16, reduction, pointers.data(), pointers.size(), 3,
                    reinterpret_cast<std::byte*>(&result), 1);
    EXPECT_EQ(result, right) << name_of(reduction);
  }
}

TEST(KernelsOfIntegers, WrapAround) {
  const int32_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ((reduced<int32_t>(DType::kInt32, Reduction::kSum, {most, 1})),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ((reduced<int8_t>(DType::kInt8, Reduction::kSum, {127, 1})), -128);
  EXPECT_EQ((reduced<uint16_t>(DType::kUInt16, Reduction::kSum, {65535, 2})), 1);
}

#if defined(__x86_64__)
TEST(KernelsOfFloats, DoNotDependOnTheThreadsModeForSubnormals) {
  const unsigned mode = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(mode |
                         0x8040);  // flush to zero, subnormals are zero: as TensorFlow's threads have it
  const auto output = reduced<float>(DType::kFloat32, Reduction::kSum, {1.3e-38F, -1.2e-38F});
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(mode);
  uint32_t bits = 0;
  std::memcpy(&bits, &output, sizeof(bits));
  EXPECT_EQ(bits, 0x000ae398u);
  EXPECT_EQ(after & 0x8040, 0x8040u) << "the thread's mode is its own again";
}
#endif

}  // namespace
}  // namespace tarantella::collective
