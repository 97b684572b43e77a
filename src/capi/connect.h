#pragma once
// Chooses the transport between the ranks of a job. No other room names a transport.

#include <memory>
#include <optional>

#include "collective/across/nodes.h"
#include "tarantella/tarantella.h"
#include "transport/memory.h"
#include "transport/wire.h"

namespace tarantella::capi {

struct Connection {
  std::unique_ptr<transport::Memory> memory;       ///< of this rank's node
  std::optional<collective::across::Nodes> nodes;  ///< if there are several
  std::unique_ptr<transport::Wire> wire;           ///< between nodes, on the leader of each; else nullptr
};

/// Meets the other ranks of options.job. Blocks, for at most options.meet_timeout; on the leader of a node also until
/// those of the others have come. Errors: those of the transports; kInvalidArgument for options.nodes that do not fit.
Result<Connection> connect(const tnt_options& options);

}  // namespace tarantella::capi
