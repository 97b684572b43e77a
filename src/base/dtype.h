#pragma once
// Element types that the core can carry and sum; the values are those of tnt_dtype in tarantella.h.

#include <cstddef>
#include <cstdint>

namespace tarantella {

enum class DType : uint32_t { kFloat32 = 1, kFloat64 = 2, kInt32 = 3, kInt64 = 4 };

constexpr bool is_valid(DType dtype) { return dtype >= DType::kFloat32 && dtype <= DType::kInt64; }

constexpr size_t size_of(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kInt32 ? 4 : 8; }

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
  }
  return "an unknown type";
}

}  // namespace tarantella
