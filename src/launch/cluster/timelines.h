#pragma once
// The timelines of a job on several hosts. Each node launcher owns the memory in which its ranks record, and compares
// its clock with the head's; it sends both to the head when the ranks have ended. The head writes the file.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cluster/connection.h"
#include "launch/cluster/message.h"
#include "launch/hosts/layout.h"
#include "launch/options.h"
#include "timeline/clocks.h"
#include "timeline/copy.h"
#include "timeline/json.h"
#include "timeline/memory.h"

namespace tarantella::launch {

/// Of a node launcher. Does nothing where no timeline is wanted.
class OwnTimelines {
 public:
  /// For `ranks` ranks of this host, the first of which is rank `first` of the job. Compares the clocks: blocks for a
  /// second at most, or until the head is gone.
  OwnTimelines(const Options& options, int ranks, int first, Connection& head);

  const timeline::Memory& memory() const { return memory_; }
  /// When all ranks have ended: compares the clocks again, and sends everything. Blocks until it is sent, the head is
  /// gone or the deadline has passed.
  void send(Deadline deadline) const;

 private:
  void send_records(int rank, Deadline deadline) const;

  const bool wanted_;
  const int ranks_, first_;
  Connection& head_;
  timeline::Memory memory_;
  std::optional<timeline::Ahead> start_;
};

/// Of the head: brings together what the hosts send.
class AllTimelines {
 public:
  /// Both arguments must outlive it. Times count from now on.
  AllTimelines(const Options& options, const std::vector<HostShare>& shares);

  /// Takes kClock, kRecords and kRecorded from a node. Ignores what is none, or is not the node's to tell.
  void take(size_t node, const Message& message);
  /// True if nothing more comes from the node.
  bool complete(size_t node) const;
  /// Writes the file with all that has come. Says what is missing, and how the clocks differ.
  void write();

  /// What write() writes, for tests.
  std::vector<timeline::Process> processes();
  timeline::Hosts hosts() const;

 private:
  struct Node {
    std::optional<timeline::Shift> clock;
    std::optional<std::string> end;  ///< empty, or why there is nothing
    std::vector<timeline::Copy> ranks;
  };

  const Options& options_;
  const std::vector<HostShare>& shares_;
  const int64_t origin_ = timeline::now();
  std::vector<Node> nodes_;
};

}  // namespace tarantella::launch
