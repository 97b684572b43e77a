#pragma once
// Checks of arguments that the collectives make before anything is sent.

#include "base/dtype.h"
#include "base/reduction.h"
#include "base/status.h"

namespace tarantella::collective {

/// kInvalidArgument for a dtype that does not exist.
inline Status check(DType dtype) {
  if (is_valid(dtype)) return {};
  return {Code::kInvalidArgument, text("there is no dtype number ", static_cast<uint32_t>(dtype))};
}

/// kInvalidArgument for a dtype or reduction that does not exist, or a reduction that the dtype does not have.
inline Status check(DType dtype, Reduction reduction) {
  TNT_RETURN_IF_ERROR(check(dtype));
  if (!is_valid(reduction))
    return {Code::kInvalidArgument, text("there is no reduction number ", static_cast<uint32_t>(reduction))};
  if (can_reduce(dtype, reduction)) return {};
  return {Code::kInvalidArgument,
          text(name_of(dtype), " elements have no ", name_of(reduction), "; convert them first")};
}

}  // namespace tarantella::collective
