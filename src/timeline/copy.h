#pragma once
// The records of a process on another machine, put together here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "timeline/timeline.h"

namespace tarantella::timeline {

/// Takes what comes from elsewhere: ignores what cannot be. Not thread-safe.
class Copy {
 public:
  /// Adds the next records, as bytes, of a process that has `made` so many in all.
  void add(uint64_t made, std::string_view records);
  /// True if all records that were kept there are here.
  bool complete() const { return begun() && added_ == kept(); }
  bool begun() const { return !memory_.empty(); }
  /// Requires begun(). Records that have not come are not complete. Lives as long as this object does not change.
  Timeline timeline();

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };

  size_t kept() const;

  uint64_t made_ = 0;
  size_t added_ = 0;
  std::vector<Line> memory_;
};

}  // namespace tarantella::timeline
