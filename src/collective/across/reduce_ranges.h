#pragma once

#include <memory>
#include <span>

#include "collective/across/across.h"

namespace tarantella::collective::across {

/// What this node has reduced, as reduce_part() keeps it.
struct NodesPart {
  const std::byte* values;
  /// Keeps them while other nodes may receive them, also after an error; nullptr: the caller of the collective does.
  std::shared_ptr<const void> owner;
};

/// Whether the leaders also meet while the values travel, as in the first round of a call.
struct Meeting {
  bool meets = false;
  /// The longest part of any call that may begin so: there is room for it, so what comes is foreseen. 0: unknown.
  size_t longest = 0;
};

/// For leaders. Gives each node the values that the others' parts have of ranges[node], in bytes of the result, and
/// reduces those of this node, in the order of nodes, into `output`.
/// Collective over the leaders, blocks.
Status reduce_ranges(Across& across, const Call& call, const NodesPart& part, std::span<const Range> ranges,
                     std::byte* output, Meeting meeting);

}  // namespace tarantella::collective::across
