#pragma once
// A rank's wait until other ranks have joined the job.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/rendezvous.h"

namespace tarantella::runtime {

/// For one thread.
class JoinWait {
 public:
  JoinWait(int rank, Deadline deadline, const RendezvousOptions& options)
      : rank_(rank), deadline_(deadline), options_(options) {}

  const Deadline& deadline() const { return deadline_; }

  /// kPeerLost if `rank`, which is needed, has ended with exit code 0, whether it had joined or not.
  Status check(int rank) const {
    if (options_.rank_status.exit_code(rank) != 0) return {};
    return {Code::kPeerLost, text("rank ", rank, " ended (exit code 0) before it joined, and rank ", rank_,
                                  " waits for it; let every rank make the same calls, or none")};
  }

  /// Call this repeatedly while a rank that had joined is gone. Errors: kPeerLost after options.failure_delay.
  Status check_gone(int rank) {
    const auto now = Clock::now();
    if (!gone_since_) gone_since_ = now;
    if (now - *gone_since_ < options_.failure_delay) return {};
    return {Code::kPeerLost, text("rank ", rank, " ended before all ranks had joined; see its own message")};
  }

  /// Call this repeatedly with the ranks that have not joined; logs them at intervals. What it has logged, or "".
  std::string warn(const std::vector<int>& awaited) {
    const auto waited = Clock::now() - since_;
    if (awaited.empty() || waited < next_warning_) return "";
    next_warning_ += options_.warn_every;
    const std::string line = text("rank ", rank_, " has waited ", static_cast<int>(in_seconds(waited)),
                                  " s for rank ", list_of(awaited), " to join the job");
    log_warning(line);
    return line;
  }

  static std::string list_of(const std::vector<int>& ranks) {
    std::string list;
    for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
    return list;
  }

 private:
  const int rank_;
  const Deadline deadline_;
  const RendezvousOptions& options_;
  const Clock::time_point since_ = Clock::now();
  Duration next_warning_ = options_.warn_every;
  std::optional<Clock::time_point> gone_since_;  ///< of the first rank that is gone
};

}  // namespace tarantella::runtime
