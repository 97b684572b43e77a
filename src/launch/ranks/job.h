#pragma once
// A running job: starts the ranks, supervises them, and leaves no process behind.

#include <optional>
#include <vector>

#include "launch/ending/failures.h"
#include "launch/ending/job_result.h"
#include "launch/ending/shutdown.h"
#include "launch/output/line_deduplicator.h"
#include "launch/output/reports.h"
#include "launch/output/streams.h"
#include "launch/ranks/input.h"
#include "launch/ranks/local_job.h"
#include "launch/ranks/ranks.h"
#include "launch/system/environment.h"

namespace tarantella::launch {

class Job {
 public:
  /// Both arguments, and what they name, must outlive it.
  Job(const LocalJobSpec& spec, const JobResources& resources);

  /// Starts all ranks and blocks until they have ended: by themselves, after a failure, or after a signal to the
  /// launcher. Without a failure or signal there is no limit. Prints the result and returns it. Call it once.
  JobResult run();

 private:
  Status start();
  /// The time for shutdown_: it stands still while the launcher does. The ranks were stopped too, by Ctrl-Z or with
  /// their machine, and could not use what is left to them.
  Clock::time_point now() const;
  void wait();
  /// Does what shutdown_ has due, and cleans up when no rank runs any more.
  void apply_next_action();
  bool finished() const;
  void apply(const Shutdown::Action& action);
  /// Ends the ranks: the job has failed on another host, or its launcher is gone.
  void terminate_ranks();
  void handle_signal(const Signals::Event& event);
  void handle_instructions();
  /// Sends a heartbeat, and ends the ranks if the frontend is gone.
  void check_frontend();
  void read_exec_failure();
  void read_reports();
  /// Tells the frontend which ranks here have joined or ended, unless all ranks of the job have joined.
  void send_rank_status();
  void receive_rank_status(const std::vector<int>& states);
  void reap(Process& rank);
  void clean_up();
  JobResult conclude();

  const LocalJobSpec& spec_;
  const JobResources& resources_;

  Input input_;
  Ranks ranks_;
  Streams streams_;
  ReportPipe report_pipe_;
  ReportReader report_reader_;
  Failures failures_;
  LineDeduplicator shown_;
  Shutdown shutdown_;
  bool progressed_ = false;             ///< a snapshot or an epoch was completed
  bool termination_requested_ = false;  ///< the frontend has sent kEnd
  bool all_joined_;                     ///< all ranks of the job have joined, or none runs on another host
  std::optional<std::string> frontend_loss_;  ///< an error message: a signal says that it is gone
  Duration paused_{};
  Status start_error_;
  std::optional<ExecFailure> exec_failure_;
  bool cleaned_up_ = false;
};

}  // namespace tarantella::launch
