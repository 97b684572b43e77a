#pragma once

#include <memory>
#include <span>

#include "collective/internode/internode_resources.h"

namespace tarantella::collective::internode {

/// What this node has reduced, as reduce_to_partial() leaves it.
struct NodePartial {
  const std::byte* values;
  /// Keeps them while other nodes may receive them, also after an error.
  std::shared_ptr<const void> owner;
};

struct ReduceRangesOptions {
  /// The leaders also exchange their calls, while the values travel: so in the first reduce_ranges() of a call.
  bool exchanges_calls = false;
  /// With that, while the calls of the others are not known: the bytes of the longest range that a node may get in any
  /// call. Receives of that length are pre-posted. 0: there is no such limit, and they are not.
  size_t prepost_bytes = 0;
};

/// For leaders, a reduce-scatter: sends each node its range of this node's partial, ranges[node], in bytes of the
/// result, and reduces the range of this node, in the order of nodes, into `output`.
/// Collective over the leaders, blocks.
Status reduce_ranges(InternodeResources& internode, const CallSignature& call, const NodePartial& partial,
                     std::span<const Range> ranges, std::byte* output, ReduceRangesOptions options);

}  // namespace tarantella::collective::internode
