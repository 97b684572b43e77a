#pragma once
// The launcher of a job on several hosts: starts an agent on each, and brings their messages together.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cli/options.h"
#include "launch/cluster/addresses.h"
#include "launch/cluster/connection.h"
#include "launch/cluster/host_exits.h"
#include "launch/cluster/host_table.h"
#include "launch/cluster/host_timelines.h"
#include "launch/cluster/protocol.h"
#include "launch/cluster/remote_launcher.h"
#include "launch/cluster/remote_launcher_process.h"
#include "launch/ending/job_result.h"
#include "launch/output/user_output.h"
#include "launch/ranks/input.h"
#include "launch/ranks/orphan_reaper.h"
#include "launch/ranks/snapshot_memory.h"
#include "launch/system/message.h"
#include "launch/system/signals.h"
#include "runtime/authenticated_listener.h"

namespace tarantella::launch {

/// What a coordinator is to run, and how. Owns nothing.
struct CoordinatorConfig {
  const Options& options;
  const RemoteLauncher& remote;
  const JobSpec& spec;
  const std::string& secret;
  const Environment& environment;                      ///< of the ranks
  const std::vector<std::string>& remote_environment;  ///< of the remote launcher's command, as "NAME=value"
  JobTimelines& timelines;
  SnapshotMemory* snapshots = nullptr;  ///< from one attempt to the next; null: there is no other
  Duration heartbeat_timeout;           ///< TNT_TIMEOUT: a host that sends nothing for so long is lost
  Duration start_timeout;               ///< that all hosts have until each is ready to start its ranks
};

class Coordinator {
 public:
  /// All arguments must outlive it.
  Coordinator(const CoordinatorConfig& config, Listener listener, Signals& signals,
              const OrphanReaper& orphan_reaper);

  /// Starts the agents and blocks until the job has ended on all hosts. Prints the result, writes the file of
  /// --timeline, and returns the result. It waits for --start-timeout at most until all hosts are ready; later, as
  /// long as the job takes. Call it once.
  JobResult run();

 private:
  void wait();
  void handle_hello(Connection& connection);
  void handle_message(size_t host, const Message& message);
  void mark_lost(size_t host, const std::string& why);
  void check_hosts();
  void on_remote_output(std::string_view output);
  void check_remote();
  void handle_signal(const Signals::Event& event);
  void suspend();
  void fail_start(const std::string& why, int code = kLaunchError);
  void fail_start_with(JobResult result);
  /// The same, since hosts are not ready. These are lost: those that `output`, a text of the remote launcher, names, or
  /// all that are not ready if it names none of them.
  void fail_start_of_unready_hosts(const std::string& output, const std::string& why);
  /// Does what is due without an event: to start the ranks, to send their status, to end the job, or to give up.
  void run_due_steps();
  /// Starts the ranks if all hosts are ready; warns of a long wait, and gives up at the limit.
  void try_start();
  void gather_timelines();
  /// Fetches the newest snapshot from a host that is left, for the next attempt.
  void gather_snapshot();
  /// Whether messages of hosts stay unread, since the user's terminal or pipe is full.
  bool is_reading_paused() const { return !gathering_ && (output_.full(false) || output_.full(true)); }
  /// Writes the final message and returns the result.
  JobResult conclude();

  const CoordinatorConfig& config_;
  std::optional<runtime::AuthenticatedListener> listener_;  ///< until all hosts are ready
  Signals& signals_;
  const OrphanReaper& orphan_reaper_;

  RemoteLauncherProcess remote_{[this](std::string_view output) { on_remote_output(output); }};
  Input input_;
  std::vector<Connection> pending_connections_;  ///< that know the secret, and have not sent kHello
  HostTable hosts_;
  HostExits exits_;
  Clock::time_point checked_at_ = Clock::now();
  bool running_ = false;  ///< all hosts are ready, and kStart was sent
  bool end_sent_ = false;
  bool progressed_ = false;  ///< a snapshot or an epoch was completed
  std::optional<Deadline> warn_of_start_;
  std::optional<Deadline> deadline_;  ///< for the start, and for the end of a job that has failed
  std::optional<JobResult> start_failure_;
  int interrupted_by_ = 0;
  std::optional<Signals::Event>
      pending_signal_;      ///< that came when the job was over; the next attempt obeys it
  bool gathering_ = false;  ///< the job is over, and its timelines or a snapshot come
  UserOutput output_;
};

}  // namespace tarantella::launch
