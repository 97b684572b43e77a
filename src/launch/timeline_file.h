#pragma once
// The file of --timeline: the ranks' records, written when the job has ended.

#include "launch/options.h"
#include "timeline/memory.h"

namespace tarantella::launch {

/// The memory of the ranks' timelines. Not valid if none is wanted, or after a WARNING.
timeline::Memory timeline_memory(const Options& options, int ranks);

/// Writes what the ranks of the ended job have recorded. A failure is a WARNING: the job itself is over.
void write_timeline(const Options& options, const timeline::Memory& memory, int ranks);

}  // namespace tarantella::launch
