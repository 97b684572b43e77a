#pragma once
// The comparison of the plans of all ranks when a plan is made, and of texts where ranks differ.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "collective/communicator.h"
#include "engine/layout.h"

namespace tarantella::engine {

/// Collective, blocks. The texts of all ranks, in rank order; `lengths` are theirs, the same on all ranks.
Result<std::vector<std::string>> allgather_texts(collective::Communicator& communicator,
                                                 const std::string& own, const std::vector<uint64_t>& lengths,
                                                 const std::string& name);

/// Collective, blocks. Ok, on all ranks, if all pass equal lists, thresholds and step checks and each node has memory
/// for the tensors. Else, on all ranks: kMismatch, which fails the communicator and names the first rank that differs
/// from rank 0 and the first tensor that differs; kInvalidArgument for another step check, and if no machine has the
/// memory; kOutOfMemory if one has not. `name` says in errors what the tensors are.
Status compare_plans(collective::Communicator& communicator, const std::string& name,
                     const std::vector<TensorSpec>& tensors, size_t threshold,
                     collective::StepCheck step_check);

}  // namespace tarantella::engine
