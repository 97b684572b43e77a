#include "launch/output/timeline_file.h"

#include <string>
#include <utility>

#include "base/host.h"
#include "launch/system/message.h"

namespace tarantella::launch {

bool wants_timeline(const Options& options) { return options.timeline && options.action != Action::kDryRun; }

timeline::Memory timeline_memory(const Options& options, int ranks) {
  if (!wants_timeline(options)) return {};
  Result<timeline::Memory> memory = timeline::Memory::make(ranks);
  if (memory.ok()) return std::move(memory).value();
  print_message(text("WARNING: there will be no timeline: ", memory.status().message()));
  return {};
}

void write_timeline(const Options& options, const timeline::Memory& memory, int ranks) {
  std::vector<Mapping> parts;
  std::vector<timeline::Process> processes;
  for (int rank = 0; rank < ranks && memory.fd() >= 0; ++rank) {
    Result<Mapping> part = memory.part(rank);
    if (!part.ok())
      return print_message(text("WARNING: cannot read the timeline: ", part.status().message()));
    parts.push_back(std::move(part).value());
    processes.push_back({rank, host_name(), timeline::Timeline(parts.back().bytes())});
  }
  if (!processes.empty()) write_timeline(options, processes, {});
}

void write_timeline(const Options& options, const std::vector<timeline::Process>& processes,
                    const timeline::Hosts& hosts) {
  if (!options.timeline) return;
  const Status written = timeline::write_json(*options.timeline, processes, hosts);
  if (!written.ok()) return print_message("WARNING: " + printable(written.message()));
  const std::string lost = timeline::lost_records(processes);
  if (!lost.empty() && options.shows_warnings()) print_message("WARNING: " + lost);
}

}  // namespace tarantella::launch
