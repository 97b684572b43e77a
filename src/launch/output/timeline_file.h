#pragma once
// The file of --timeline: the ranks' records, written when the job has ended.

#include <vector>

#include "launch/cli/options.h"
#include "timeline/json.h"
#include "timeline/memory.h"

namespace tarantella::launch {

/// Whether the ranks of this job record what they do.
bool wants_timeline(const Options& options);

/// The memory of the timelines of ranks of this machine. Not valid if none is wanted, or after a WARNING.
timeline::Memory timeline_memory(const Options& options, int ranks);

/// Writes what the ranks of the ended job have recorded on this machine. A failure is a WARNING: the job is over.
void write_timeline(const Options& options, const timeline::Memory& memory, int ranks);
/// The same for ranks of any machine.
void write_timeline(const Options& options, const std::vector<timeline::Process>& processes,
                    const timeline::Hosts& hosts);

}  // namespace tarantella::launch
