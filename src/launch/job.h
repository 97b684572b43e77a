#pragma once
// A running job: starts the ranks, supervises them, and leaves no process behind.

#include <optional>
#include <vector>

#include "launch/failures.h"
#include "launch/guard.h"
#include "launch/input.h"
#include "launch/notes.h"
#include "launch/orphans.h"
#include "launch/ranks.h"
#include "launch/reports.h"
#include "launch/shutdown.h"
#include "launch/signals.h"
#include "launch/streams.h"
#include "launch/verdict.h"
#include "runtime/attendance.h"

namespace tarantella::launch {

class Job {
 public:
  /// All arguments must outlive the job.
  Job(const JobDescription& job, Signals& signals, const Orphans& orphans, Guard& guard,
      const runtime::Attendance& attendance);

  /// Starts all ranks and blocks until they have ended: by themselves, after a failure, or after a signal to the
  /// launcher. Without a failure or signal there is no limit. Prints the verdict and returns it. Call it once.
  Verdict run();

 private:
  Status start();
  /// The time for shutdown_: it stands still while the launcher does. The ranks were stopped too, by Ctrl-Z or with
  /// their machine, and could not use what is left to them.
  Clock::time_point now() const;
  void wait();
  void advance();
  bool finished() const;
  void obey(const Shutdown::Order& order);
  /// Ends the ranks, which the rest of the job has lost.
  void abandon();
  void handle_signal(const Signals::Event& event);
  void read_head();
  /// Tells the head that this host runs. Ends the ranks if the head, or the network to it, is gone.
  void look_at_head();
  void read_exec_failure();
  void read_reports();
  /// Tells the head which ranks here have joined or ended, unless all ranks of the job have met.
  void tell_attendance();
  void hear_attendance(const std::vector<int>& states);
  void collect(Process& rank);
  void clean_up();
  Verdict conclude();

  const JobDescription& job_;
  Signals& signals_;
  const Orphans& orphans_;
  Guard& guard_;
  const runtime::Attendance& attendance_;

  Input input_;
  Ranks ranks_;
  Streams streams_;
  ReportPipe report_pipe_;
  ReportReader report_reader_;
  Failures failures_;
  Notes notes_;
  Shutdown shutdown_;
  Clock::time_point told_alive_{};
  bool abandoned_ = false;  ///< the head has said that the job ends
  bool all_met_ = false;    ///< all ranks of a job on several hosts wait for one another, or have met
  bool orphaned_ = false;   ///< of a node launcher: what has started it is gone
  Duration stood_still_{};
  Status start_error_;
  std::optional<ExecFailure> exec_failure_;
  bool cleaned_up_ = false;
};

}  // namespace tarantella::launch
