#pragma once
// The hosts of a job, and how far the coordinator is with each.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cluster/connection.h"
#include "launch/cluster/protocol.h"
#include "launch/hosts/host_assignments.h"

namespace tarantella::launch {

/// Only flush_all() blocks.
class HostTable {
 public:
  struct Entry {
    HostAssignment assignment;
    std::unique_ptr<Connection> connection = {};  ///< to its agent; null: not yet, or lost
    bool ready = false;
    std::vector<std::string> warnings = {};
    Clock::time_point last_message_at = Clock::now();
    bool finished = false;  ///< it has given its result, or is lost, or nothing more is expected of it
    bool sends_timeline = false;
    uint64_t snapshot = 0;  ///< the newest that its agent has, 0 without one
  };

  /// `assignments` has one host at least.
  explicit HostTable(const std::vector<HostAssignment>& assignments);

  size_t size() const { return hosts_.size(); }
  Entry& operator[](size_t index) { return hosts_[index]; }
  std::vector<Entry>::iterator begin() { return hosts_.begin(); }
  std::vector<Entry>::iterator end() { return hosts_.end(); }

  bool all_ready() const;
  bool all_finished() const;
  /// Marks all hosts as finished.
  void finish_all();
  /// Those without a connection; if all have one, those that are not ready.
  std::vector<std::string> unready_host_names() const;
  /// The same in a message: "host node1", or "hosts node1, node2".
  std::string unready_hosts() const;
  /// One line for each warning, with the hosts that warn of it.
  std::vector<std::string> warnings() const;
  /// "rank 3", or "ranks 2-3".
  std::string ranks_of(size_t index) const;

  /// Sends a message to all hosts that are not finished.
  void broadcast(Message::Kind kind, const std::string& content = {});
  void flush_all(Duration timeout);

  /// Which ranks of the host have joined or ended. Ignores a list that does not fit.
  void receive_rank_status(size_t index, const std::vector<int>& states);
  /// Sends changes to all hosts, at least `pause` after the last time; at once when all have joined: they wait for it.
  void send_rank_status(Duration pause);

 private:
  std::vector<Entry> hosts_;
  std::vector<int> states_;  ///< of all ranks, as in runtime::RankStatusFile
  std::optional<Clock::time_point> states_sent_at_;
  bool states_changed_ = false;
};

}  // namespace tarantella::launch
