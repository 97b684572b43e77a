#pragma once
// The blocking collectives of a job on several nodes. Contracts as in collective/operations.h, with the numbers of
// ranks in the job. Elements are reduced in rank order within each node, then in the order of nodes: the bits depend on
// which rank is on which node, and on nothing else.

#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/reduction.h"
#include "collective/across/across.h"

namespace tarantella::collective::across {

Status allreduce(Across& across, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name);

Status broadcast(Across& across, void* data, size_t count, DType dtype, int root, std::string_view name);

Status allgather(Across& across, const void* input, void* output, std::span<const uint64_t> counts,
                 DType dtype, std::string_view name);

/// kInvalidArgument for more ranks than a chunk has lines; so allgather().
Status reduce_scatter(Across& across, const void* input, void* output, size_t count, DType dtype,
                      Reduction reduction, std::string_view name);

/// As alltoall() of one node, but each rank's values go to every node.
Status alltoall(Across& across, const void* input, std::span<const uint64_t> send_counts, void* output,
                std::span<const uint64_t> receive_counts, DType dtype, std::string_view name);

Status barrier(Across& across, std::string_view name);

/// Blocks until all ranks make `call`. kMismatch on all ranks if calls differ.
Status agree(Across& across, const Call& call);

}  // namespace tarantella::collective::across
