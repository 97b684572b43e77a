#pragma once
// The comparison of the tensors of all ranks when a plan is made.

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/all_ranks.h"
#include "engine/layout.h"

namespace tarantella::engine {

/// Collective, blocks. Ok if all ranks pass equal lists; else kMismatch on all ranks, which names the first rank that
/// differs from rank 0 and the first tensor that differs. `name` says in errors what the tensors are.
Status compare_tensors(AllRanks& ranks, const std::string& name, const std::vector<TensorSpec>& tensors);

}  // namespace tarantella::engine
