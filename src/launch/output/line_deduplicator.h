#pragma once
// Shows each line that ranks report for the user once.

#include <set>
#include <string>
#include <vector>

#include "launch/output/reports.h"

namespace tarantella::launch {

/// Remembers which lines were shown. Pure.
class LineDeduplicator {
 public:
  static constexpr size_t kMost = 100;

  /// The lines to print when `note` arrives: none if the same text has arrived before, from any rank, or if kMost texts
  /// have. `seen`: the user sees the rank's own output, so the note is only remembered.
  std::vector<std::string> lines_for(const Report& note, bool seen);

 private:
  std::set<std::string> known_;
};

}  // namespace tarantella::launch
