#pragma once
// Checks of arguments that the collectives make before anything is sent, on one node and on several.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/reduction.h"
#include "base/status.h"

namespace tarantella::collective {

/// kInvalidArgument for a dtype that does not exist.
Status check(DType dtype);

/// kInvalidArgument for a dtype or reduction that does not exist, or a reduction that the dtype does not have.
Status check(DType dtype, Reduction reduction);

// As check(), and kInvalidArgument for what the collective of that name cannot take, on `size` ranks.
Status check_broadcast(DType dtype, int root, size_t size);
Status check_allgather(DType dtype, std::span<const uint64_t> counts, size_t size);
Status check_reduce_scatter(DType dtype, Reduction reduction, const void* input, const void* output);
Status check_alltoall(DType dtype, std::span<const uint64_t> send_counts,
                      std::span<const uint64_t> receive_counts, const void* input, const void* output,
                      size_t size);

/// The error of an all-to-all in which `rank` expects another number of elements than `from` sends it. Ranks are those
/// of the job.
Status other_share(std::string_view name, int rank, uint64_t expected, int from, uint64_t sent);

}  // namespace tarantella::collective
