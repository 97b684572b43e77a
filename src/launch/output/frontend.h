#pragma once
// The frontend of the ranks of this machine: their output, heartbeats and exit code go to it, and instructions for them
// come from it.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/system/poller.h"
#include "launch/system/signals.h"

namespace tarantella::launch {

/// Two implementations: UserOutput, the user of a job on this machine alone, and CoordinatorLink, the coordinator of a
/// job on several hosts. It is not in ranks/, since Streams writes to it. No call blocks, except finish(). Not
/// thread-safe.
class Frontend {
 public:
  /// What to do with the ranks, or to send them.
  struct Instruction {
    enum class Kind { kSignal, kRankStatus, kEnd };
    Kind kind = Kind::kEnd;
    Signals::Event signal =
        {};  ///< of kSignal: as if this process had got it. SIGTSTP and SIGCONT are for the ranks
    std::vector<int> states = {};  ///< of kRankStatus: of all ranks of the job, as in runtime::RankStatusFile
  };

  Frontend() = default;
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;
  virtual ~Frontend() = default;

  /// Queues output of ranks, or lines of the launcher for stderr.
  virtual void put(bool is_err, std::string_view data) = 0;
  /// True if much is queued: read no more from the ranks.
  virtual bool full(bool is_err) const = 0;
  /// True if nothing is queued.
  virtual bool idle() const = 0;

  /// Whether rank 0 may inherit stdin, stdout and stderr of this process.
  virtual bool shares_stdio() const = 0;
  /// What follows the number of a rank in the prefix of a line: "@node1", or nothing.
  virtual std::string rank_suffix() const = 0;

  /// Adds to `poller` what to wait for; `on_instruction` should then call instructions().
  virtual void watch(Poller& poller, std::function<void()> on_instruction) = 0;
  /// The instructions that have come.
  virtual std::vector<Instruction> instructions() = 0;
  /// How often to call heartbeat(), in milliseconds; -1: never.
  virtual int heartbeat_interval_ms() const = 0;
  /// Reports that this machine is alive, and finds out whether the other end is.
  virtual void heartbeat() = 0;
  /// True if the other end is gone: the ranks should end.
  virtual bool lost() const = 0;
  /// An error message if signal `number` to this process means that its parent is gone, and so the frontend.
  virtual std::optional<std::string> lost_by_signal(int number) const = 0;
  /// Sends which ranks of this machine have joined or ended.
  virtual void send_rank_status(const std::vector<int>& states) = 0;

  /// Sends that a snapshot or an epoch was completed, from which a restart goes on.
  virtual void report_progress() = 0;

  /// Prints the final message of the job, whole lines for stderr, and returns its exit code: `code`, unless output is
  /// lost. May block until the user has read the message; with `hurried` for seconds.
  virtual int finish(int code, const std::string& message, Signals& signals, bool hurried) = 0;
};

}  // namespace tarantella::launch
