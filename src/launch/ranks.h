#pragma once
// The processes of a job's ranks: started, signalled and collected together.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/command.h"
#include "launch/guard.h"
#include "launch/input.h"
#include "launch/options.h"
#include "launch/orphans.h"
#include "launch/placement.h"
#include "launch/process.h"
#include "launch/reports.h"
#include "launch/signals.h"
#include "runtime/ended.h"

namespace tarantella::launch {

/// What a job runs. Nothing is owned.
struct JobDescription {
  const Placement& placement;
  const Options& options;
  const Command& command;
  const std::vector<std::vector<std::string>>& environments;  ///< one a rank, "NAME=value" words
};

class Ranks {
 public:
  /// All arguments must outlive it.
  Ranks(const JobDescription& job, const Inherited& inherited, const Orphans& orphans, Guard& guard,
        const runtime::Ended& ended);

  /// Starts all. On an error those that have been started run on.
  Status start(const Input& input, const ReportPipe& reports);
  /// A descriptor to watch (poll(2), POLLIN) for exec_failure(); -1: every rank has become its program.
  int exec_failure_fd() const { return failure_read_.get(); }
  /// Of the next rank that could not become its program, if there is one; does not wait.
  std::optional<ExecFailure> exec_failure();

  /// In rank order, those that have ended among them.
  std::vector<Process>& processes() { return processes_; }
  std::set<pid_t> living() const;

  void kill();
  /// `to_process_alone` spares the ranks' children. `spare_master`: one in the launcher's group has the signal already.
  /// Wakes ranks that are stopped, which would not hear of it.
  void stop(int number, bool spare_master, bool to_process_alone);
  /// To the processes alone.
  void forward(int number) const;
  /// Stops the ranks and then this process, as Ctrl-Z does; returns when this process is resumed and has resumed the
  /// ranks. `from_terminal`: a master in the launcher's group is stopped and resumed by the shell.
  void suspend(bool from_terminal) const;

  /// Whether a signal that leaves time has ended the rank, but not all that it had started: a shell around the Python
  /// that is to save its work. Those then get signal `number` (0: none), once, but not their own children, which they
  /// may need for that.
  bool leaves_group(const Process& rank, const Exit& exit, int number);
  /// Those for whom leaves_group() was so at last.
  std::vector<Process*> leaving();
  bool is_leaving(const Process& rank) const { return leaving_.contains(rank.rank()); }
  /// Takes it that all that such ranks have left got the signal from somebody else.
  void count_as_told();
  /// Collects a rank that has ended, and ends what is left of its group.
  void collect(Process& rank, const Exit& exit);

 private:
  SpawnRequest request_for(int rank, const ReportPipe& reports) const;

  const JobDescription& job_;
  const Inherited& inherited_;
  const Orphans& orphans_;
  Guard& guard_;
  const runtime::Ended& ended_;
  const bool master_in_own_group_;
  Fd null_, failure_read_, failure_write_;
  std::vector<Process> processes_;
  std::map<int, std::set<pid_t>> leaving_;  ///< by rank, and who of its group got the signal
};

}  // namespace tarantella::launch
