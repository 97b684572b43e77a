#pragma once
// Whether a job that has failed starts again: the rules of --max-restarts.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cli/restart_options.h"
#include "launch/ending/job_result.h"

namespace tarantella::launch {

/// Pure: it is told how each attempt ended, and when. An attempt is one run of all ranks.
class Restarts {
 public:
  /// `hosts` are those of the first attempt.
  Restarts(RestartOptions options, size_t hosts) : options_(std::move(options)), hosts_(hosts) {}

  struct Decision {
    bool restart = false;
    Duration pause{};                    ///< before the next attempt
    std::vector<std::string> dropped{};  ///< hosts that the next attempt does without
    std::string line{};                  ///< for the user; empty: there is nothing to say
  };

  /// What follows after an attempt. The same failure twice without progress between them ends the job, as does the
  /// last restart, a kind of failure that the user has not chosen, a job that could not start, and a signal to the
  /// launcher. After a restart, an attempt that does not start is not counted: it is a try within the wait for lost
  /// hosts (--host-timeout).
  Decision after(const JobResult& result, Clock::time_point now);

  /// How often the job was started again: TNT_RESTART_COUNT of the next attempt.
  int count() const { return count_; }

 private:
  Decision without(const std::vector<std::string>& lost, Clock::time_point now);

  const RestartOptions options_;
  size_t hosts_;
  int count_ = 0;
  int in_a_row_ = 0;  ///< failures without progress between them
  std::string last_cause_;
  std::optional<Clock::time_point> wait_until_;  ///< for awaited_
  std::vector<std::string> awaited_;             ///< lost hosts without which there are too few
};

}  // namespace tarantella::launch
