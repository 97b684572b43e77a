#pragma once
// Timelines as a file for ui.perfetto.dev and chrome://tracing: JSON in the Trace Event Format.

#include <string>
#include <vector>

#include "base/status.h"
#include "timeline/clocks.h"
#include "timeline/timeline.h"

namespace tarantella::timeline {

struct Process {
  int rank;
  std::string host;
  Timeline timeline;
  ClockDrift clock = {};  ///< of its records; their origin is on the clock of the file
};

/// What the file says of the hosts of a job on several.
struct Hosts {
  struct Clock {
    std::string host;
    ClockDrift clock;
  };
  struct Missing {
    std::string host;
    std::string why;
  };

  std::vector<Clock> clocks;
  std::vector<Missing> missing;  ///< whose records are not all there
};

/// Whether write_json() can be expected to write `file`: its folder exists and may be changed. kInvalidArgument, with
/// one line that names the file, if not. Creates nothing.
Status check_file(const std::string& file);

/// Writes the timelines, rank by rank, each as a process of the trace. Times count from the origins, which are one
/// moment; the file says which.
/// A span that has not ended lasts until the end of the one around it, or of the rank's records.
/// Replaces `file` as a whole, and leaves nothing behind on an error: kSystem, with one line that names the file.
Status write_json(const std::string& file, const std::vector<Process>& processes, const Hosts& hosts = {});

/// One line that says which ranks have made more records than there was room for; empty if none has.
std::string lost_records(const std::vector<Process>& processes);

}  // namespace tarantella::timeline
