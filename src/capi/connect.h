#pragma once
// Chooses the transport between the ranks of a job. No other room names a transport.

#include <memory>

#include "tarantella/tarantella.h"
#include "transport/memory.h"

namespace tarantella::capi {

/// Meets the other ranks of options.job and returns this rank's view of their shared memory. Blocks, for at most
/// options.meet_timeout. Errors: those of the transport.
Result<std::unique_ptr<transport::Memory>> connect(const tnt_options& options);

}  // namespace tarantella::capi
