#pragma once
// The processes of a job's ranks: started, signalled and reaped together.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/output/frontend.h"
#include "launch/output/log_files.h"
#include "launch/output/reports.h"
#include "launch/ranks/input.h"
#include "launch/ranks/job_record.h"
#include "launch/ranks/launcher_watchdog.h"
#include "launch/ranks/local_job.h"
#include "launch/ranks/orphan_reaper.h"
#include "launch/system/process.h"
#include "launch/system/signals.h"
#include "runtime/rank_status_file.h"

namespace tarantella::launch {

/// What the ranks of a job need beside the processes. Owns nothing.
struct JobResources {
  const std::vector<std::vector<std::string>>& environments;  ///< one per rank, of "NAME=value" strings
  LogFiles& logs;
  JobRecordFile& record_file;
  LauncherWatchdog& watchdog;
  const OrphanReaper& orphan_reaper;
  const runtime::RankStatusFile& rank_status;
  Signals& signals;
  Frontend& frontend;
};

class Ranks {
 public:
  /// Both arguments, and what they name, must outlive it.
  Ranks(const LocalJobSpec& spec, const JobResources& resources);

  /// Starts all ranks. On an error those already started run on. Errors: kSystem.
  Status start(const Input& input, const ReportPipe& reports);
  /// A descriptor to watch (poll(2), POLLIN) for exec_failure(); -1: every rank has become its program.
  int exec_failure_fd() const { return failure_read_.get(); }
  /// The failure of the next rank that could not become its program, if there is one. Does not block.
  std::optional<ExecFailure> exec_failure();

  /// All processes in rank order, also those that have ended.
  std::vector<Process>& processes() { return processes_; }
  /// The process ids of the ranks that were not reaped yet.
  std::set<pid_t> running() const;

  /// Kills all ranks, each with its process group if it has one of its own.
  void kill();
  /// Sends signal `number` to all ranks, and resumes ranks that are stopped, which could not handle it. With
  /// `to_process_alone` their children do not get it. With `spare_rank_0`, neither does rank 0 if it is in the
  /// launcher's process group: it has the signal already.
  void stop(int number, bool spare_rank_0, bool to_process_alone);
  /// Sends signal `number` to the ranks, not to their children.
  void signal_processes(int number) const;
  /// Stops (SIGSTOP) or resumes (SIGCONT) the ranks and their children.
  void signal_process_groups(int number) const;
  /// Stops the ranks and then this process, as Ctrl-Z does. Returns when this process was resumed and has resumed the
  /// ranks. With `from_terminal` the shell stops and resumes rank 0 if it is in the launcher's process group.
  void suspend(bool from_terminal) const;

  /// Where a signal that leaves time to save has ended the rank, other processes of its process group may run on, such
  /// as the Python inside a shell script, which may save its work. Sends these remaining processes signal `number` (0:
  /// none) once, and returns whether there are any. Their children do not get it, since they may be needed for the
  /// save.
  bool signal_remaining_processes(const Process& rank, const Exit& exit, int number);
  /// The ranks for which the last signal_remaining_processes() returned true.
  std::vector<Process*> ranks_with_remaining_processes();
  /// Whether the last signal_remaining_processes() for the rank returned true, so that it is not reaped yet.
  bool awaits_remaining_processes(const Process& rank) const {
    return remaining_processes_.contains(rank.rank());
  }
  /// Notes that all remaining processes of ranks got the signal from elsewhere.
  void mark_remaining_processes_signalled();
  /// Reaps a rank that has ended, and kills the rest of its process group.
  void reap(Process& rank, const Exit& exit);

 private:
  SpawnRequest request_for(int rank, const ReportPipe& reports) const;

  const LocalJobSpec& spec_;
  const JobResources& resources_;
  const bool rank_0_in_own_process_group_;
  Fd null_, failure_read_, failure_write_;
  std::vector<Process> processes_;
  std::map<int, std::set<pid_t>>
      remaining_processes_;  ///< by rank: the processes of its group that got the signal
};

}  // namespace tarantella::launch
