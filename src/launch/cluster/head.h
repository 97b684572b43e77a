#pragma once
// The launcher of a job on several hosts: starts a node launcher on each, and brings their messages together.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cluster/connection.h"
#include "launch/cluster/endings.h"
#include "launch/cluster/message.h"
#include "launch/cluster/starter.h"
#include "launch/cluster/timelines.h"
#include "launch/input.h"
#include "launch/options.h"
#include "launch/orphans.h"
#include "launch/output.h"
#include "launch/process.h"
#include "launch/signals.h"
#include "launch/verdict.h"
#include "runtime/door.h"

namespace tarantella::launch {

/// What a head runs. Owns nothing.
struct ClusterJob {
  const Options& options;
  const Starter& starter;
  const JobOrder& order;
  const std::string& secret;
  const std::vector<std::string>& environment;  ///< of the starter's command, "NAME=value"
  AllTimelines& timelines;
  Duration silence;        ///< after which a host that can be reached, but does not answer, is lost
  Duration start_timeout;  ///< that all hosts have until each is ready to start its ranks
};

class Head {
 public:
  /// All arguments must outlive it.
  Head(const ClusterJob& job, Listener listener, Signals& signals, const Orphans& orphans);

  /// Starts the node launchers and blocks until the job has ended on all hosts. Prints the verdict, writes the file of
  /// --timeline, and returns the verdict. It waits for --start-timeout at most until all hosts are ready; later, as
  /// long as the job takes. Call it once.
  Verdict run();

 private:
  struct Node {
    std::unique_ptr<Connection> connection;
    bool ready = false;
    std::vector<std::string> warnings;
    Clock::time_point heard_at = Clock::now();
    bool over = false;  ///< it has given its verdict, or is lost
    bool sends_records = false;
  };

  Status start();
  void wait();
  void greet(size_t index);
  void hear(size_t node);
  void take(size_t node, const Message& message);
  void lose(size_t node, const std::string& why);
  void judge_silence();
  void look_at_starter();
  void drain_starter();
  void handle_signal(const Signals::Event& event);
  void suspend();
  void fail_start(const std::string& why, int code);
  void advance();
  void print_warnings();
  void tell_attendance();
  void gather();
  void tell_all(Message::Kind kind, const std::string& content = {});
  bool all_ready() const;
  bool all_over() const;
  std::string silent_hosts() const;
  /// Whether it leaves what hosts say unread, since the user's terminal or pipe is full.
  bool is_deaf() const;
  void end_starter();
  void write_rest();

  const ClusterJob& job_;
  std::optional<runtime::Door> door_;  ///< until all hosts are ready
  Signals& signals_;
  const Orphans& orphans_;

  Fd null_;
  Process starter_;
  std::optional<Exit> starter_exit_;
  Input input_;
  std::optional<Deadline> warn_of_start_;
  Tail starter_said_;
  std::vector<Connection> guests_;  ///< that know the secret, and have not said which host they are
  std::vector<Node> nodes_;
  Endings endings_;
  std::vector<int> states_;  ///< of all ranks, as in runtime::Attendance
  Clock::time_point states_told_{};
  bool states_changed_ = false;
  Clock::time_point looked_at_ = Clock::now();
  bool running_ = false;  ///< all hosts are ready, and were told to start their ranks
  bool told_to_end_ = false;
  std::optional<Deadline> deadline_;  ///< for the start, and for the end of a job that has failed
  std::optional<Verdict> start_failure_;
  int interrupted_by_ = 0;
  bool gathers_ = false;  ///< the job is over, and its timelines come
  Sink stdout_, stderr_;
};

}  // namespace tarantella::launch
