#include "runtime/job_barrier.h"

#include <string>
#include <thread>
#include <vector>

#include "runtime/join_wait.h"
#include "runtime/report.h"

namespace tarantella::runtime {
namespace {

std::vector<int> missing_ranks(const RankStatusFile& rank_status, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!rank_status.has_joined(rank)) missing.push_back(rank);
  }
  return missing;
}

/// Whether `missing`, in ascending order, has all ranks below `rank`.
bool is_first(int rank, const std::vector<int>& missing) {
  const auto below = static_cast<size_t>(rank);
  return rank == 0 || (missing.size() >= below && missing[below - 1] == rank - 1);
}

}  // namespace

Status job_barrier(int rank, int size, Deadline deadline, const RendezvousOptions& options) {
  if (!options.rank_status.exists() || !report(rank, ReportKind::kJoin)) return {};
  JoinWait wait(rank, deadline, options);
  const Deadline soon = Deadline::after(1s);
  while (true) {
    const std::vector<int> missing = missing_ranks(options.rank_status, size);
    if (missing.empty()) return {};
    for (const int each : missing) TNT_RETURN_IF_ERROR(wait.check(each));
    if (deadline.passed())
      return {Code::kTimeout, text("of ", size, " ranks, these did not join in time: ",
                                   JoinWait::list_of(missing), "; did they start?")};
    // the user sees what rank 0 logs
    if (is_first(rank, missing)) {
      if (const std::string line = wait.warn(missing); rank != 0 && !line.empty())
        (void)report(rank, ReportKind::kNote, line);
    }
    std::this_thread::sleep_for(soon.passed() ? 20ms : 1ms);
  }
}

}  // namespace tarantella::runtime
