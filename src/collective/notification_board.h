#pragma once
// The notifications of some ranks, in memory that the ranks of a node share: what each has notified of, its sequence
// number, and whether it has left. The sequence number says how far a rank is: a NodeGroup counts its rounds and
// barriers, RemoteNotifications the calls of the job. A rank waits for a notification without the help of the one that
// notifies.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/status.h"
#include "collective/notification_log.h"
#include "transport/node_memory.h"

namespace tarantella::collective {

/// One rank's view. Each row has one writer at a time; reading is thread-safe.
class NotificationBoard {
 public:
  /// What lies in shared memory, zeroed at first.
  struct alignas(64) Row {
    transport::Word sequence;
    transport::Word departed;
    alignas(64) NotificationLog log;
  };

  /// `memory` and `rows`, which lie in it, must outlive the board.
  NotificationBoard(transport::NodeMemory& memory, Row* rows) : memory_(memory), rows_(rows) {}

  /// Of the writer of a row. Do not block. It notifies before its sequence number changes, and before it leaves.
  void notify(size_t row, uint64_t key, uint32_t value, uint32_t sequence);
  void set_sequence(size_t row, uint32_t sequence) {
    rows_[row].sequence.store(sequence, std::memory_order_release);
  }
  void set_departed(size_t row) { rows_[row].departed.store(1, std::memory_order_release); }

  bool has_departed(size_t row) const { return rows_[row].departed.load(std::memory_order_acquire) != 0; }
  /// The value of the last notification for `name`, if it is among the newest ones.
  std::optional<uint32_t> find(size_t row, const std::string& name) const;

  /// As NodeGroup::wait_notification(), where `sequence` is the number of this rank and `rank` is the job's number
  /// of the one that notifies. `departed`: whether that rank has left. `check` is called between two polls: an error
  /// ends the wait. Does not check for failures before. For one thread at a time.
  Result<uint32_t> await(size_t row, int rank, const std::string& name, uint32_t sequence,
                         const std::function<bool()>& departed, const std::function<Status()>& check);

 private:
  transport::NodeMemory& memory_;
  Row* const rows_;
  uint32_t sequence_ = 0;                  ///< at the last wait
  std::map<std::string, uint32_t> names_;  ///< how often each was waited for since
};

}  // namespace tarantella::collective
