#pragma once
// What a rank tells its launcher, over an inherited pipe. The format is in src/launch/output/reports.h; Python's side
// is python/tarantella/_job/report.py.

#include <string>

namespace tarantella::runtime {

enum class ReportKind : int {
  kMore = 0,      ///< text that the rank's next record continues
  kFailed = 1,    ///< the rank will end with exit code `code` because of its own error
  kLost = 2,      ///< the rank ends only because another rank failed
  kNote = 3,      ///< one line for the user
  kJoin = 4,      ///< the rank waits for all others to join
  kStacks = 5,    ///< lines for the user: where the rank's program is
  kProgress = 6,  ///< a snapshot or an epoch was completed: a restart goes on from there
};

/// Sends a record. False without a launcher. Blocks only while the launcher does not read.
bool report(int rank, ReportKind kind, const std::string& text = {});

}  // namespace tarantella::runtime
