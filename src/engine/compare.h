#pragma once
// The one comparison of what ranks are about to train, before the first step.

#include <string>
#include <vector>

#include "base/status.h"
#include "collective/stage.h"
#include "engine/layout.h"

namespace tarantella::engine {

/// Collective. Ok when every rank passes the same list. Else kMismatch on all ranks, with the first rank that
/// differs from rank 0 and the first tensor in which it does. `name` says whose tensors they are.
Status compare_tensors(collective::Stage& stage, const std::string& name,
                       const std::vector<TensorSpec>& tensors);

}  // namespace tarantella::engine
