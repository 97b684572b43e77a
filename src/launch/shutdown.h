#pragma once
// How a job ends: by which event, and when its ranks are stopped and killed.

#include <optional>
#include <string>

#include "base/clock.h"
#include "launch/first_cause.h"
#include "launch/signals.h"

namespace tarantella::launch {

/// Pure: told what happened and when, answers what is to be done to the ranks that still run. From a failure on it
/// gives the others the time of FirstCause to end by themselves, then SIGTERM, then SIGKILL; after a signal to the
/// launcher, that signal, and SIGKILL when the grace is over.
class Shutdown {
 public:
  /// What is to be done now to all ranks that still run.
  struct Order {
    enum class Kind {
      kNone,
      kStop,         ///< send them signal_sent()
      kCountAsTold,  ///< somebody else has sent it to all processes
      kKill
    };
    Kind kind = Kind::kNone;
    bool spare_master = false;  ///< kStop was typed on the terminal: a master in its foreground group has it
    bool to_process_alone =
        false;             ///< kStop leaves them time to save, for which they may need their children
    std::string why = {};  ///< of kKill, for the user; empty: it needs no line
  };

  /// `grace_seconds` between a signal to the launcher and SIGKILL; without it, short after a key (Ctrl-C, Ctrl-\),
  /// and time for a checkpoint after other signals.
  explicit Shutdown(std::optional<double> grace_seconds) : grace_seconds_(grace_seconds) {}

  /// Not all ranks could be started, or not with the program.
  Order cannot_start(Clock::time_point now);
  /// The rank says that it fails.
  void reported(const FirstCause::Ending& ending, Clock::time_point now);
  /// The rank's process has ended. May be told twice.
  void ended(const FirstCause::Ending& ending, Clock::time_point now);
  /// One of the signals that ask for an end came to the launcher; `living` ranks run.
  Order signalled(const Signals::Event& event, size_t living, Clock::time_point now);
  /// What is due; call it after every event and whenever timeout_ms() has passed.
  Order advance(size_t living, Clock::time_point now);

  /// How long nothing is due; -1: for ever.
  int timeout_ms(Clock::time_point now) const;
  /// Waiting longer is no use: what even SIGKILL does not end is stuck inside the kernel.
  bool given_up(Clock::time_point now) const;
  /// No rank has been stopped: what one does, it does of itself.
  bool undecided() const { return phase_ == Phase::kRunning || phase_ == Phase::kFailing; }
  bool killing() const { return phase_ == Phase::kKilling; }

  /// What the ranks were sent; 0: nothing yet.
  int signal_sent() const { return signal_sent_; }
  /// The signal to the launcher that came first; 0: none.
  int interrupted_by() const { return interrupted_by_; }
  const FirstCause& first_cause() const { return first_cause_; }
  /// A rank failed, and not of the signal that then stopped the job.
  bool blames_a_rank() const;
  /// Ranks that ran on after the failure were stopped.
  bool stopped_others() const { return stopped_others_; }

 private:
  enum class Phase { kRunning, kFailing, kStopping, kKilling };

  Order stop(int number, Clock::time_point now, Clock::time_point kill_at);
  Order kill(std::string why, Clock::time_point now);
  bool has_others(size_t living) const;
  Duration grace_after(int number) const;

  const std::optional<double> grace_seconds_;
  Phase phase_ = Phase::kRunning;
  FirstCause first_cause_;
  int signal_sent_ = 0;
  Clock::time_point stopped_at_{}, kill_at_{};  ///< from kStopping on
  bool all_ended_ = false;
  bool stopped_others_ = false;
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_{};
};

}  // namespace tarantella::launch
