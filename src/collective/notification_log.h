#pragma once
// The notifications of one rank, in memory that others read.

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "transport/node_memory.h"

namespace tarantella::collective {

/// Lies in shared memory, zeroed at first. One writer; any number of readers at any time.
class NotificationLog {
 public:
  /// How many entries are kept: the newest.
  static constexpr uint32_t kEntries = 1024;

  /// Adds that `key` was done with result `value` while `sequence` was the writer's number (see NotificationBoard).
  void append(uint64_t key, uint32_t value, uint32_t sequence) {
    Entry& entry = entries_[count_.load(std::memory_order_relaxed) % kEntries];
    entry.key.store(key, std::memory_order_release);
    entry.value.store(value, std::memory_order_release);
    entry.sequence.store(sequence, std::memory_order_release);
    count_.fetch_add(1, std::memory_order_seq_cst);
  }

  struct Found {
    std::optional<uint32_t> value;
    bool lost = false;  ///< the entry may have been dropped: there were too many since `sequence`
  };

  /// The value of the `nth` entry (from 1) for `key` at `sequence` or later, if there is one.
  Found find(uint64_t key, uint32_t sequence, uint32_t nth) const {
    const uint32_t end = count_.load(std::memory_order_seq_cst);
    bool lost = end >= kEntries;
    for (uint32_t i = oldest(end); i != end; ++i) {
      const std::optional<Notification> notification = read(i);
      if (!notification) continue;
      const bool recent = static_cast<int32_t>(notification->sequence - sequence) >= 0;
      lost = lost && recent;
      if (recent && notification->key == key && --nth == 0) return {notification->value, false};
    }
    return {std::nullopt, lost};
  }

  /// The value of the newest entry for `key`, if there is one.
  std::optional<uint32_t> last(uint64_t key) const {
    const uint32_t end = count_.load(std::memory_order_seq_cst);
    std::optional<uint32_t> newest;
    for (uint32_t i = oldest(end); i != end; ++i) {
      const std::optional<Notification> notification = read(i);
      if (notification && notification->key == key) newest = notification->value;
    }
    return newest;
  }

  /// Changes with every notification.
  transport::Word& count() { return count_; }

 private:
  struct Entry {
    std::atomic<uint64_t> key;
    std::atomic<uint32_t> value;
    transport::Word sequence;
  };
  struct Notification {
    uint64_t key;
    uint32_t value;
    uint32_t sequence;
  };

  /// The first of `end` entries that is kept. The slot of the one before may be overwritten at this moment.
  static uint32_t oldest(uint32_t end) { return end >= kEntries ? end - kEntries + 1 : 0; }

  /// Entry number `i`, unless it was overwritten meanwhile.
  std::optional<Notification> read(uint32_t i) const {
    const Entry& entry = entries_[i % kEntries];
    const Notification notification{entry.key.load(std::memory_order_acquire),
                                    entry.value.load(std::memory_order_acquire),
                                    entry.sequence.load(std::memory_order_acquire)};
    if (count_.load(std::memory_order_acquire) - i >= kEntries) return std::nullopt;
    return notification;
  }

  transport::Word count_;
  std::array<Entry, kEntries> entries_;
};

}  // namespace tarantella::collective
