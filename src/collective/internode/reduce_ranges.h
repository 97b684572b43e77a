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
  /// Only with exchanges_calls: receives are then started before the calls of the other nodes are known. This is the
  /// length of the longest range that a node may get in any call, in bytes. Receives of this length are pre-posted. 0:
  /// there is no such limit; receives have the length of this node's call, and are not pre-posted.
  size_t max_prepost_bytes = 0;
};

/// For leaders, a reduce-scatter: sends each node its range of this node's partial, ranges[node], in bytes of the
/// result, and reduces the range of this node, in the order of nodes, into `output`.
/// Collective over the leaders, blocks.
Status reduce_ranges(InternodeResources& internode, const CallSignature& call, const NodePartial& partial,
                     std::span<const Range> ranges, std::byte* output, ReduceRangesOptions options);

}  // namespace tarantella::collective::internode
