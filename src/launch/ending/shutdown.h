#pragma once
// How a job ends: after which event, and when its ranks are stopped and killed.

#include <optional>
#include <string>

#include "base/clock.h"
#include "launch/ending/root_cause.h"
#include "launch/system/signals.h"

namespace tarantella::launch {

/// Pure: it gets events with their times, and returns what to do with the ranks that still run. After a failure the
/// other ranks have the time of RootCause to end by themselves; then they get SIGTERM, then SIGKILL. After a signal to
/// the launcher they get that signal, and SIGKILL when the grace is over.
class Shutdown {
 public:
  /// What to do now with all ranks that still run.
  struct Action {
    enum class Kind {
      kNone,
      kStop,           ///< send them signal_sent()
      kMarkSignalled,  ///< note that all processes have got signal_sent() from elsewhere
      kKill
    };
    Kind kind = Kind::kNone;
    bool spare_rank_0 =
        false;  ///< of kStop, typed on the terminal: rank 0 has got it if it is in the foreground process group
    bool to_process_alone =
        false;                ///< of kStop: spare the ranks' children, which they may need to save their work
    std::string reason = {};  ///< of kKill: the reason for the user; empty: print none
  };

  /// `grace_seconds` is the time between a signal to the launcher and SIGKILL. By default it is short after a key
  /// (Ctrl-C, Ctrl-\) and leaves time for a checkpoint after other signals.
  explicit Shutdown(std::optional<double> grace_seconds) : grace_seconds_(grace_seconds) {}

  /// A rank, or its program, could not be started.
  Action on_start_failure(Clock::time_point now);
  /// The rank reports that it fails.
  void on_failure_report(const RankExit& rank_exit, Clock::time_point now);
  /// The rank's process has ended. A second call for one rank has no effect.
  void on_exit(const RankExit& rank_exit, Clock::time_point now);
  /// The launcher got a signal that asks for an end; so many ranks are `running`.
  Action on_signal(const Signals::Event& event, size_t running, Clock::time_point now);
  /// The job ends because of another host, or since the launcher of the whole job is gone.
  Action terminate(size_t running, Clock::time_point now);
  /// What is due now. Call it after every event and whenever timeout_ms() has passed.
  Action next_action(size_t running, Clock::time_point now);

  /// How long nothing is due, in milliseconds; -1: until the next event.
  int timeout_ms(Clock::time_point now) const;
  /// True if the wait for killed ranks has lasted long enough: a process that SIGKILL does not end is stuck in the
  /// kernel.
  bool given_up(Clock::time_point now) const;
  /// Whether no rank was stopped or killed yet: so far each rank ends by itself.
  bool is_before_stop() const { return phase_ == Phase::kRunning || phase_ == Phase::kFailing; }
  bool killing() const { return phase_ == Phase::kKilling; }

  /// The signal that the ranks were sent; 0: none yet.
  int signal_sent() const { return signal_sent_; }
  /// The signal to the launcher that ends the job; 0: none.
  int interrupted_by() const { return interrupted_by_; }
  const RootCause& root_cause() const { return root_cause_; }
  /// Whether a rank failed, and not by the signal that ends the job.
  bool has_failure_beside_signal() const;
  /// Whether all ranks that were stopped have ended with kPreempted.
  bool have_saved() const { return all_have_saved_.value_or(false); }
  /// Whether ranks that ran on after the failure were stopped.
  bool stopped_others() const { return stopped_others_; }

 private:
  enum class Phase { kRunning, kFailing, kStopping, kKilling };

  Action stop(int number, Clock::time_point now, Clock::time_point kill_at);
  Action kill(std::string reason, Clock::time_point now);
  /// Whether ranks still run other than the one that failed first.
  bool others_running(size_t running) const;
  Duration grace_after(int number) const;

  const std::optional<double> grace_seconds_;
  Phase phase_ = Phase::kRunning;
  RootCause root_cause_;
  int signal_sent_ = 0;
  Clock::time_point stopped_at_{}, kill_at_{};  ///< from kStopping on
  bool all_ended_ = false;
  bool stopped_others_ = false;
  std::optional<bool> all_have_saved_;  ///< nothing: none has ended
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_{};
};

}  // namespace tarantella::launch
