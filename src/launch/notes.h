#pragma once
// The lines that ranks have for the user, each shown once.

#include <set>
#include <string>
#include <vector>

#include "launch/reports.h"

namespace tarantella::launch {

/// Pure.
class Notes {
 public:
  static constexpr size_t kMost = 100;

  /// What is to be printed when the note comes: nothing if it has come before, from any rank, or if kMost have. `seen`:
  /// the user sees what its rank prints.
  std::vector<std::string> lines_for(const Report& note, bool seen);

 private:
  std::set<std::string> known_;
};

}  // namespace tarantella::launch
