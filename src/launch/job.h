#pragma once
// A running job: starts the ranks, looks after them, and leaves nothing behind.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/command.h"
#include "launch/first_cause.h"
#include "launch/guard.h"
#include "launch/input.h"
#include "launch/options.h"
#include "launch/orphans.h"
#include "launch/output.h"
#include "launch/placement.h"
#include "launch/process.h"
#include "launch/reports.h"
#include "launch/signals.h"
#include "runtime/ended.h"

namespace tarantella::launch {

class Job {
 public:
  /// All arguments must outlive the job; `environments` has one entry a rank.
  Job(const Placement& placement, const Options& options, const Command& command,
      const std::vector<std::vector<std::string>>& environments, Signals& signals, const Orphans& orphans,
      Guard& guard, const runtime::Ended& ended);

  /// Starts all ranks and waits until they have ended, of themselves, by a failure or by a signal to the
  /// launcher; the wait has no limit as long as nothing fails. Says what went wrong. Returns the exit code of
  /// the launcher, unless it was stopped_by() a signal.
  int run();

  /// The signal to the launcher that has ended the job, which the launcher should die of; 0: none.
  int stopped_by() const;

 private:
  /// What is being done about the ranks that still run.
  enum class Phase { kRunning, kFailing, kStopping, kKilling };

  struct Rank {
    Process process;
    Tail tail;
    LineMarker out, err;
    bool leaves_group = false;  ///< has ended, and what it started still has time: see leaves_group()
    std::set<pid_t> told = {};  ///< of those, who got the signal
  };

  Status start();
  SpawnRequest request_for(int rank) const;

  void wait();
  void read_exec_failure();
  void read_reports();
  void handle_signal(const Signals::Event& event);
  void suspend(bool from_terminal);
  void take(Rank& rank, bool is_err);
  void drain(Rank& rank);
  void collect(Rank& rank);
  bool leaves_group(Rank& rank, const Exit& exit);
  void advance();
  Duration grace_after(int number) const;
  void stop(int number, Clock::time_point kill_at, bool spare_master);
  void kill_all();
  void kill_all_and_say(const std::string& why);
  void clean_up();
  std::set<pid_t> living() const;
  bool finished() const;
  int timeout_ms() const;
  int conclude();
  bool blames_a_rank() const;
  bool has_others() const;
  void say(const std::string& line);
  void write_rest();
  std::string last_words(const FirstCause::Ending& cause) const;

  const Placement& placement_;
  const Options& options_;
  const Command& command_;
  const std::vector<std::vector<std::string>>& environments_;
  Signals& signals_;
  const Orphans& orphans_;
  Guard& guard_;
  const runtime::Ended& ended_;

  Input input_;
  std::vector<Rank> ranks_;
  bool master_in_own_group_ = true;
  Fd null_, failure_read_, failure_write_;
  ReportPipe report_pipe_;
  ReportReader report_reader_;
  Failures failures_;
  std::set<std::string> notes_;
  Sink stdout_, stderr_;

  Phase phase_ = Phase::kRunning;
  int stop_signal_ = 0;                         ///< what the ranks were sent, from kStopping on
  Clock::time_point stopped_at_{}, kill_at_{};  ///< from kStopping on
  FirstCause first_cause_;
  bool stopped_others_ = false;
  bool cleaned_up_ = false;
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_{};
  std::optional<ExecFailure> exec_failure_;
  Status start_error_;
};

}  // namespace tarantella::launch
