#pragma once

#include <span>
#include <string>

#include "collective/across/across.h"

namespace tarantella::collective::across {

/// For leaders. Gives each node the values that the others' part() has of ranges[node], in bytes of the result, and
/// reduces those of this node, in the order of nodes, into `output`. In the first round of a call the leaders also
/// meet, while the values travel. `what` names the caller's operation in errors. Collective over the leaders, blocks.
Status reduce_ranges(Across& across, const Call& call, std::span<const Range> ranges, std::byte* output,
                     bool is_first, const std::string& what);

}  // namespace tarantella::collective::across
