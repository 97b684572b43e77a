#pragma once
// The timelines of a job on several hosts. Each agent owns the memory in which its ranks record, and compares its clock
// with the coordinator's; it sends both to the coordinator when the ranks have ended. The coordinator writes the file.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cli/options.h"
#include "launch/cluster/connection.h"
#include "launch/cluster/protocol.h"
#include "launch/hosts/host_assignments.h"
#include "timeline/clocks.h"
#include "timeline/copy.h"
#include "timeline/json.h"
#include "timeline/memory.h"

namespace tarantella::launch {

/// Of an agent. Does nothing where no timeline is wanted.
class AgentTimelines {
 public:
  /// For `ranks` ranks of this host, the first of which has number `first` in the job. Compares the clocks: blocks for
  /// a second at most, or until the coordinator is gone.
  AgentTimelines(const Options& options, int ranks, int first, Connection& coordinator);

  const timeline::Memory& memory() const { return memory_; }
  /// When all ranks have ended: compares the clocks again, and sends everything. Blocks until it is sent, the
  /// coordinator is gone or the deadline has passed.
  void send(Deadline deadline) const;

 private:
  void send_records(int rank, Deadline deadline) const;

  const bool wanted_;
  const int ranks_, first_;
  Connection& coordinator_;
  timeline::Memory memory_;
  std::optional<timeline::ClockOffset> start_;
};

/// Of the coordinator: brings together what the hosts send.
class JobTimelines {
 public:
  /// Both arguments must outlive it. Times count from now on.
  JobTimelines(const Options& options, const std::vector<HostAssignment>& assignments);

  /// Takes kClock, kRecords and kRecordsEnd from a host. Ignores other messages, and records of ranks elsewhere.
  void take(size_t index, const Message& message);
  /// True if nothing more comes from the host.
  bool complete(size_t index) const;
  /// Writes the file with all that has come. Prints what is missing, and how the clocks differ.
  void write();

  /// What write() writes, for tests.
  std::vector<timeline::Process> processes();
  timeline::Hosts hosts() const;

 private:
  struct Host {
    std::optional<timeline::ClockDrift> clock;
    std::optional<std::string> end;  ///< empty, or why there is nothing
    std::vector<timeline::Copy> ranks;
  };

  const Options& options_;
  const std::vector<HostAssignment>& assignments_;
  const int64_t origin_ = timeline::now();
  std::vector<Host> hosts_;
};

}  // namespace tarantella::launch
