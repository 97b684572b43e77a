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

/// kInvalidArgument for a dtype that does not exist, and for more elements than memory can have bytes: `times` times
/// the sum of `counts`.
Status check(DType dtype, std::span<const uint64_t> counts, size_t times = 1);

// As check(), and kInvalidArgument for what the collective of that name cannot take, on `size` ranks. What is reduced
// must be aligned as its elements are.
Status check_allreduce(DType dtype, Reduction reduction, const void* input, const void* output,
                       uint64_t count);
Status check_broadcast(DType dtype, uint64_t count, int root, size_t size);
Status check_allgather(DType dtype, std::span<const uint64_t> counts, size_t size);
Status check_reduce_scatter(DType dtype, Reduction reduction, const void* input, const void* output,
                            uint64_t count, size_t size);
Status check_alltoall(DType dtype, std::span<const uint64_t> send_counts,
                      std::span<const uint64_t> receive_counts, const void* input, const void* output,
                      size_t size);

/// The error of an all-to-all in which `rank` expects another number of elements than `from` sends it. Ranks are those
/// of the job.
Status other_share(std::string_view name, int rank, uint64_t expected, int from, uint64_t sent);

}  // namespace tarantella::collective
