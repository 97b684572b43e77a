#include "engine/finite.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tarantella::engine {
namespace {

/// `exponent` has the bits of the exponent, which are all set in what is not finite.
template <typename Bits>
bool is_finite(const std::byte* data, size_t count, Bits exponent) {
  constexpr size_t kBlock = 4096 / sizeof(Bits);
  Bits block[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    std::memcpy(block, data + begin * sizeof(Bits), size * sizeof(Bits));  // it need not be aligned
    bool all = true;
    for (size_t i = 0; i < size; ++i) all &= (block[i] & exponent) != exponent;
    if (!all) return false;
  }
  return true;
}

}  // namespace

bool is_finite(const void* data, size_t count, DType dtype) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  switch (dtype) {
    case DType::kFloat64:
      return is_finite<uint64_t>(bytes, count, 0x7ff0'0000'0000'0000);
    case DType::kFloat32:
      return is_finite<uint32_t>(bytes, count, 0x7f80'0000);
    case DType::kFloat16:
      return is_finite<uint16_t>(bytes, count, 0x7c00);
    case DType::kBFloat16:
      return is_finite<uint16_t>(bytes, count, 0x7f80);
    default:
      return true;
  }
}

}  // namespace tarantella::engine
