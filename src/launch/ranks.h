#pragma once
// The processes of a job's ranks: started, signalled and collected together.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cluster/connection.h"
#include "launch/command.h"
#include "launch/guard.h"
#include "launch/input.h"
#include "launch/log_files.h"
#include "launch/options.h"
#include "launch/orphans.h"
#include "launch/placement.h"
#include "launch/process.h"
#include "launch/record.h"
#include "launch/reports.h"
#include "launch/signals.h"
#include "runtime/attendance.h"

namespace tarantella::launch {

/// What a job runs. Owns nothing.
struct JobDescription {
  const Placement& placement;
  const Options& options;
  const Command& command;
  const std::vector<std::vector<std::string>>& environments;  ///< one per rank, of "NAME=value" words
  LogFiles& logs;
  Record& record;
  int first = 0;                   ///< the number in the job of the first rank here
  Connection* head = nullptr;      ///< to the launcher of a job on several hosts; null: this is it
  bool is_part = false;            ///< more ranks run on other hosts
  bool heeds_user_signals = true;  ///< false: SIGUSR1 and SIGUSR2 come from the MPI that started this process
  bool drops_start_lines = false;  ///< see drops_start_lines()
  int leader_fd = -1;              ///< a descriptor that the first rank here inherits; -1: none
};

class Ranks {
 public:
  /// All arguments must outlive it.
  Ranks(const JobDescription& job, const Inherited& inherited, const Orphans& orphans, Guard& guard,
        const runtime::Attendance& attendance);

  /// Starts all ranks. On an error those already started run on. Errors: kSystem.
  Status start(const Input& input, const ReportPipe& reports);
  /// A descriptor to watch (poll(2), POLLIN) for exec_failure(); -1: every rank has become its program.
  int exec_failure_fd() const { return failure_read_.get(); }
  /// The failure of the next rank that could not become its program, if there is one. Does not block.
  std::optional<ExecFailure> exec_failure();

  /// All processes in rank order, also those that have ended.
  std::vector<Process>& processes() { return processes_; }
  /// The process ids of the ranks that were not collected yet.
  std::set<pid_t> living() const;

  /// Kills all ranks, each with its process group if it has one of its own.
  void kill();
  /// Sends signal `number` to all ranks, and resumes ranks that are stopped, which could not handle it. With
  /// `to_process_alone` their children do not get it. With `spare_master` a master in the launcher's process group does
  /// not either: it has the signal already.
  void stop(int number, bool spare_master, bool to_process_alone);
  /// Sends signal `number` to the ranks, not to their children.
  void forward(int number) const;
  /// Stops (SIGSTOP) or resumes (SIGCONT) the ranks and their children.
  void tell(int number) const;
  /// Stops the ranks and then this process, as Ctrl-Z does. Returns when this process was resumed and has resumed the
  /// ranks. With `from_terminal` the shell stops and resumes a master in the launcher's process group.
  void suspend(bool from_terminal) const;

  /// Whether a signal that leaves time to save (see leaves_time()) has ended the rank while processes that it started
  /// run on, such as the Python inside a shell script, which may save its work. Sends these processes signal `number`
  /// (0: none) once. Their children do not get it, since they may be needed for the save.
  bool leaves_group(const Process& rank, const Exit& exit, int number);
  /// The ranks for which the last leaves_group() returned true.
  std::vector<Process*> leaving();
  bool is_leaving(const Process& rank) const { return leaving_.contains(rank.rank()); }
  /// Notes that all processes which such ranks have left got the signal from elsewhere.
  void count_as_told();
  /// Collects a rank that has ended, and kills the rest of its process group.
  void collect(Process& rank, const Exit& exit);

 private:
  SpawnRequest request_for(int rank, const ReportPipe& reports) const;

  const JobDescription& job_;
  const Inherited& inherited_;
  const Orphans& orphans_;
  Guard& guard_;
  const runtime::Attendance& attendance_;
  const bool master_in_own_group_;
  Fd null_, failure_read_, failure_write_;
  std::vector<Process> processes_;
  std::map<int, std::set<pid_t>> leaving_;  ///< by rank: the processes of its group that got the signal
};

}  // namespace tarantella::launch
