#pragma once
// Makes the communicator of a job. No other file names a transport, or asks whether the job has several nodes.

#include <memory>

#include "collective/communicator.h"
#include "tarantella/tarantella.h"

namespace tarantella::capi {

/// Joins the other ranks of options.job. Blocks, for at most options.meet_timeout; on the leader of a node also until
/// those of the others have come. Errors: those of the transports and of communicators; kInvalidArgument for
/// options.nodes that do not fit.
Result<std::unique_ptr<collective::Communicator>> connect(const tnt_options& options,
                                                          const collective::GroupOptions& group_options);

}  // namespace tarantella::capi
