#pragma once
// The last events of a plan's gradients, for tests and timelines.

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace tarantella::engine {

enum class Event : uint32_t {
  kSubmit = 1,   ///< a gradient was submitted; index = tensor
  kReduced = 2,  ///< this rank has summed its slice of a bucket; index = bucket
  kDone = 3,     ///< all ranks have, so the sums are complete; index = bucket
};

struct Record {
  int64_t nanoseconds;  ///< on the monotonic clock
  Event event;
  uint32_t index;
};

/// Keeps the newest kCapacity records. Thread-safe.
class Trace {
 public:
  static constexpr size_t kCapacity = 4096;

  void add(Event event, size_t index) {
    const auto now =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
    const std::lock_guard lock(mutex_);
    const Record record{now, event, static_cast<uint32_t>(index)};
    if (records_.size() < kCapacity) {
      records_.push_back(record);
    } else {
      records_[next_] = record;
    }
    next_ = (next_ + 1) % kCapacity;
  }

  /// The records, oldest first.
  std::vector<Record> snapshot() const {
    const std::lock_guard lock(mutex_);
    std::vector<Record> ordered(records_);
    if (ordered.size() == kCapacity) {
      std::rotate(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(next_), ordered.end());
    }
    return ordered;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Record> records_;
  size_t next_ = 0;
};

}  // namespace tarantella::engine
