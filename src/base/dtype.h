#pragma once
// Element types that the core can carry and reduce; the values are those of tnt_dtype in tarantella.h.

#include <cstddef>
#include <cstdint>

namespace tarantella {

enum class DType : uint32_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,   ///< IEEE 754 half precision
  kBFloat16 = 6,  ///< the upper half of a float32
  kBool = 7,      ///< a byte, 0 or 1
  kUInt8 = 8,
  kInt8 = 9,
  kInt16 = 10,
  kUInt16 = 11,
  kUInt32 = 12,
  kUInt64 = 13,
};

constexpr bool is_valid(DType dtype) { return dtype >= DType::kFloat32 && dtype <= DType::kUInt64; }

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

/// In bytes; 1 if `dtype` is not valid.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      return 2;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      break;
  }
  return 1;
}

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
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kBool:
      return "bool";
    case DType::kUInt8:
      return "uint8";
    case DType::kInt8:
      return "int8";
    case DType::kInt16:
      return "int16";
    case DType::kUInt16:
      return "uint16";
    case DType::kUInt32:
      return "uint32";
    case DType::kUInt64:
      return "uint64";
  }
  return "an unknown type";
}

}  // namespace tarantella
