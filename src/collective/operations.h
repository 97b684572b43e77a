#pragma once
// The blocking collectives. All ranks call the same one with the same arguments (but for the data), in one order;
// each runs on the caller's thread, one at a time, and blocks until its result is there. Sums are taken in rank
// order: every rank gets the same bits, whoever comes first.
// Errors, on every rank: kMismatch when calls differ, kPeerLost, kTimeout (see group.h); kInvalidArgument, before
// anything is sent, for an unknown dtype or root.

#include <cstddef>
#include <string>

#include "base/dtype.h"
#include "collective/exchange.h"

namespace tarantella::collective {

/// `output` gets the sums over ranks of `count` elements of `input`; the two may be the same buffer.
Status allreduce(Exchange& exchange, const void* input, void* output, size_t count, DType dtype,
                 const std::string& name);

/// `data` of `root` replaces that of the others.
Status broadcast(Exchange& exchange, void* data, size_t count, DType dtype, int root,
                 const std::string& name);

/// `output` gets the `count` elements of each rank, in rank order: size() * count elements.
Status allgather(Exchange& exchange, const void* input, void* output, size_t count, DType dtype,
                 const std::string& name);

Status barrier(Exchange& exchange, const std::string& name);

}  // namespace tarantella::collective
