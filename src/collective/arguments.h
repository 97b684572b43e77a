#pragma once
// What the collectives check before anything is sent.

#include "base/dtype.h"
#include "base/reduction.h"
#include "base/status.h"

namespace tarantella::collective {

/// kInvalidArgument for a dtype that does not exist.
Status check(DType dtype);

/// kInvalidArgument for a dtype or reduction that does not exist, or a reduction that the dtype does not have.
Status check(DType dtype, Reduction reduction);

}  // namespace tarantella::collective
