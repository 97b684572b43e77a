#pragma once
// How the elements of several ranks are combined; the values are those of tnt_reduction in tarantella.h.

#include <cstdint>

#include "base/dtype.h"

namespace tarantella {

enum class Reduction : uint32_t {
  kSum = 1,
  kMin = 2,  ///< a NaN of any rank wins
  kMax = 3,  ///< a NaN of any rank wins
  kAnd = 4,  ///< bit by bit
  kOr = 5,   ///< bit by bit
  kAverage = 6,
};

constexpr bool is_valid(Reduction reduction) {
  return reduction >= Reduction::kSum && reduction <= Reduction::kAverage;
}

/// Whether `dtype` supports the reduction: floating-point numbers have no and/or, integers no average, and bools
/// neither sum nor average.
constexpr bool can_reduce(DType dtype, Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return dtype != DType::kBool;
    case Reduction::kAverage:
      return is_floating(dtype);
    case Reduction::kAnd:
    case Reduction::kOr:
      return !is_floating(dtype);
    case Reduction::kMin:
    case Reduction::kMax:
      return true;
  }
  return false;
}

constexpr const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kAnd:
      return "and";
    case Reduction::kOr:
      return "or";
    case Reduction::kAverage:
      return "average";
  }
  return "an unknown reduction";
}

}  // namespace tarantella
