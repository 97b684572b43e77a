#pragma once
// A timeline of this process for the time of a test.

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "timeline/timeline.h"

namespace tarantella {

class TimelineOn {
 public:
  explicit TimelineOn(size_t records) : memory_(timeline::Timeline::bytes_for(records) / sizeof(Line)) {
    timeline::current().store(&timeline_);
  }
  ~TimelineOn() { timeline::current().store(nullptr); }
  TimelineOn(const TimelineOn&) = delete;
  TimelineOn& operator=(const TimelineOn&) = delete;

  timeline::Timeline& timeline() { return timeline_; }
  std::span<const timeline::Record> records() const { return timeline_.records(); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::vector<Line> memory_;
  timeline::Timeline timeline_{std::as_writable_bytes(std::span(memory_))};
};

/// Records a bucket with all of its times.
inline void add_bucket(timeline::Timeline& timeline, int64_t begin, const std::array<int64_t, 3>& parts,
                       int64_t end, bool failed = false) {
  timeline::Record* record = timeline.begin_bucket(1, 0, begin);
  record->parts.full = parts[0];
  record->parts.summing = parts[1];
  record->parts.summed = parts[2];
  record->parts.failed = failed ? 1 : 0;
  record->end = end;
}

}  // namespace tarantella
