#pragma once
// The blocking collectives. All ranks make the same calls in the same order, with the same arguments except for the
// data. A call runs on the caller's thread, one call at a time, and blocks until its result is complete. Elements are
// reduced in rank order: every rank gets the same bits, whichever comes first. `count` and `counts` are numbers of
// elements. Errors on all ranks: kMismatch if calls differ, kPeerLost, kTimeout (see group.h). kInvalidArgument, before
// anything is sent, for an unknown dtype or root, or a reduction that the dtype does not have.

#include <cstddef>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/reduction.h"
#include "collective/stage.h"

namespace tarantella::collective {

/// Reduces `count` elements of `input` over the ranks into `output`, which may be the same buffer.
Status allreduce(Stage& stage, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name);

/// `input` has `count` elements for each rank, in rank order. Reduces those for this rank into `output`, of `count`
/// elements. The buffers must not overlap.
Status reduce_scatter(Stage& stage, const void* input, void* output, size_t count, DType dtype,
                      Reduction reduction, std::string_view name);

/// Copies `count` elements of `data` on rank `root` to `data` on all other ranks.
Status broadcast(Stage& stage, void* data, size_t count, DType dtype, int root, std::string_view name);

/// Copies counts[rank] elements of each rank's `input` to `output`, in rank order. `counts` is the same on all ranks.
/// The buffers must not overlap.
Status allgather(Stage& stage, const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                 std::string_view name);

/// `input` has send_counts[rank] elements for each rank, in rank order; `output` gets receive_counts[rank] elements
/// from each. The buffers must not overlap. kMismatch if a rank expects another number of elements than it is sent.
Status alltoall(Stage& stage, const void* input, std::span<const uint64_t> send_counts, void* output,
                std::span<const uint64_t> receive_counts, DType dtype, std::string_view name);

/// Blocks until all ranks have called it.
Status barrier(Stage& stage, std::string_view name);

}  // namespace tarantella::collective
