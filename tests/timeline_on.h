#pragma once
// A timeline of this process for the time of a test.

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

}  // namespace tarantella
