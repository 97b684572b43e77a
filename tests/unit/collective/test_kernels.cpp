#include <gtest/gtest.h>

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

template <typename T>
class Kernels : public testing::Test {
 protected:
  static std::vector<std::vector<T>> random_inputs(size_t n, size_t count) {
    std::mt19937_64 generator(n * 1000 + count);
    std::vector<std::vector<T>> inputs(n, std::vector<T>(count));
    for (auto& input : inputs) {
      for (T& value : input) value = static_cast<T>(static_cast<double>(generator() % 2'000'000) / 3.0);
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

using Types = testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(Kernels, Types);

TYPED_TEST(Kernels, SumInRankOrderToTheBit) {
  for (const size_t n : {1, 2, 3, 4, 9}) {
    for (const size_t count : {0, 1, 7, 16, 2047, 2048, 2049, 10000}) {
      const auto inputs = this->random_inputs(n, count);
      std::vector<TypeParam> output(count);
      sum(Of<TypeParam>::kDType, this->pointers(inputs).data(), n,
          reinterpret_cast<std::byte*>(output.data()), count);
      const auto right = this->expected(inputs);
      ASSERT_TRUE(count == 0 || std::memcmp(output.data(), right.data(), count * sizeof(TypeParam)) == 0)
          << n << " inputs, " << count << " elements";
    }
  }
}

TYPED_TEST(Kernels, EveryInstructionSetGivesTheSameBits) {
  constexpr size_t kCount = 5003;
  const auto inputs = this->random_inputs(5, kCount);
  const auto right = this->expected(inputs);
  const auto check = [&](auto kernel) {
    std::vector<TypeParam> output(kCount);
    kernel(Of<TypeParam>::kDType, this->pointers(inputs).data(), 5,
           reinterpret_cast<std::byte*>(output.data()), kCount);
    EXPECT_EQ(std::memcmp(output.data(), right.data(), kCount * sizeof(TypeParam)), 0);
  };
  check(baseline::sum);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) check(avx2::sum);
  if (__builtin_cpu_supports("avx512f")) check(avx512::sum);
#endif
}

TYPED_TEST(Kernels, MaySumIntoTheFirstTwoInputs) {
  for (const size_t into : {0, 1}) {
    auto inputs = this->random_inputs(4, 3000);
    const auto right = this->expected(inputs);
    sum(Of<TypeParam>::kDType, this->pointers(inputs).data(), 4,
        reinterpret_cast<std::byte*>(inputs[into].data()), 3000);
    EXPECT_EQ(inputs[into], right);
  }
}

TEST(KernelsOfIntegers, WrapAround) {
  const int32_t most = std::numeric_limits<int32_t>::max();
  const int32_t one = 1;
  int32_t output = 0;
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(&most),
                               reinterpret_cast<const std::byte*>(&one)};
  sum(DType::kInt32, inputs, 2, reinterpret_cast<std::byte*>(&output), 1);
  EXPECT_EQ(output, std::numeric_limits<int32_t>::min());
}

#if defined(__x86_64__)
TEST(KernelsOfFloats, DoNotDependOnTheThreadsModeForSubnormals) {
  const float a = 1.3e-38F;
  const float b = -1.2e-38F;
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(&a),
                               reinterpret_cast<const std::byte*>(&b)};
  const unsigned mode = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(mode |
                         0x8040);  // flush to zero, subnormals are zero: as TensorFlow's threads have it
  float output = 0;
  sum(DType::kFloat32, inputs, 2, reinterpret_cast<std::byte*>(&output), 1);
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(mode);
  uint32_t bits = 0;
  std::memcpy(&bits, &output, sizeof(bits));
  EXPECT_EQ(bits, 0x000ae398u);
  EXPECT_EQ(after & 0x8040, 0x8040u) << "the thread's mode is its own again";
}
#endif

TEST(KernelsOfFloats, PassOnNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float one = 1;
  float output = 0;
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(&one),
                               reinterpret_cast<const std::byte*>(&nan)};
  sum(DType::kFloat32, inputs, 2, reinterpret_cast<std::byte*>(&output), 1);
  EXPECT_TRUE(std::isnan(output));
}

}  // namespace
}  // namespace tarantella::collective
