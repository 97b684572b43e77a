#pragma once
// The blocking collectives. All ranks call the same one with the same arguments (except for the data), in one order;
// each runs on the caller's thread, one at a time, and blocks until its result is there. Elements are reduced in rank
// order: every rank gets the same bits, whoever comes first.
// Errors, on every rank: kMismatch when calls differ, kPeerLost, kTimeout (see group.h); kInvalidArgument, before
// anything is sent, for an unknown dtype or root, or a reduction that the dtype does not have.

#include <cstddef>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/reduction.h"
#include "collective/stage.h"

namespace tarantella::collective {

/// `output` gets the reduction over ranks of `count` elements of `input`; the two may be the same buffer.
Status allreduce(Stage& stage, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name);

/// `input` has `count` elements for each rank, in rank order; `output` gets the reduction of those for this rank.
/// The two must not overlap.
Status reduce_scatter(Stage& stage, const void* input, void* output, size_t count, DType dtype,
                      Reduction reduction, std::string_view name);

/// `data` of `root` replaces that of the others.
Status broadcast(Stage& stage, void* data, size_t count, DType dtype, int root, std::string_view name);

/// `output` gets the elements of each rank, in rank order: counts[rank] of them, which all ranks must know. `input`
/// must not overlap `output`.
Status allgather(Stage& stage, const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                 std::string_view name);

/// `input` has send_counts[rank] elements for each rank, in rank order; `output` gets receive_counts[rank] from each.
/// The two must not overlap. kMismatch if a rank expects another number than it gets.
Status alltoall(Stage& stage, const void* input, std::span<const uint64_t> send_counts, void* output,
                std::span<const uint64_t> receive_counts, DType dtype, std::string_view name);

Status barrier(Stage& stage, std::string_view name);

}  // namespace tarantella::collective
