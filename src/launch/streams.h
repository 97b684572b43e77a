#pragma once
// How stdout and stderr of the ranks reach the user.

#include <string>
#include <string_view>
#include <vector>

#include "launch/cluster/connection.h"
#include "launch/log_files.h"
#include "launch/options.h"
#include "launch/output.h"
#include "launch/poller.h"
#include "launch/process.h"
#include "launch/say.h"
#include "launch/signals.h"

namespace tarantella::launch {

/// Passes on what the user should see of the ranks' pipes: of all ranks, each line marked with its rank, or of the
/// master, as it is. Keeps the end of the rest, and writes everything to the logs. Never blocks on the user's terminal,
/// file or pipe, except in write_rest().
class Streams {
 public:
  /// For `ranks` ranks of this machine, the first of which is rank `first` of the job. With `head` all output goes
  /// there instead of to stdout and stderr. `drops_start_lines`: see StartLines; the logs have them. `logs` and `head`
  /// must outlive it.
  Streams(int ranks, int first, const Options& options, bool drops_start_lines, LogFiles& logs,
          Connection* head);

  /// Adds to `poller` what to wait for: room for pending output, and bytes of the ranks unless too much is pending.
  /// Both arguments must exist until the poller has called its handlers.
  void watch(std::vector<Process>& ranks, Poller& poller);
  /// Reads the rest in the pipes of a rank that has ended, and closes them. Does not block.
  void drain(Process& rank);

  /// Adds a line of the launcher itself.
  void say(const std::string& line) { put_error(as_said(line)); }
  void put_error(std::string_view data) { put(true, data); }
  /// The end of the stderr of a rank, counted on this machine, if that is not passed on; see Tail::last_words().
  std::string last_words(int rank) const;

  /// Of stdout; see Sink::error().
  int output_error() const { return stdout_.error(); }
  /// True if nothing is pending.
  bool idle() const { return head_ != nullptr ? head_->idle() : stdout_.idle() && stderr_.idle(); }
  /// Writes what is pending for stderr. Blocks if nothing reads it: for minutes, with `hurried` for seconds, and at
  /// most until a signal arrives.
  void write_rest(Signals& signals, bool hurried);

 private:
  struct Pipes {
    Tail tail;
    StartLines start;
    LineMarker out, err;
  };

  void take(Process& rank, bool is_err);
  void pass_on(int rank, bool is_err, std::string_view data);
  void show(int rank, bool is_err, std::string_view data);
  void put(bool is_err, std::string_view data);
  bool full(bool is_err) const;

  const bool marks_output_, marks_errors_;  ///< whether those of all ranks are passed on
  const bool drops_start_lines_;
  const int first_;
  LogFiles& logs_;
  Connection* const head_;
  std::vector<Pipes> pipes_;
  Sink stdout_, stderr_;
};

}  // namespace tarantella::launch
