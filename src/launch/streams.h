#pragma once
// How stdout and stderr of the ranks reach the user.

#include <string>
#include <string_view>
#include <vector>

#include "launch/output.h"
#include "launch/poller.h"
#include "launch/process.h"
#include "launch/say.h"
#include "launch/signals.h"

namespace tarantella::launch {

/// Passes on what the user should see of the ranks' pipes, each line marked with its rank, and keeps the end of the
/// rest. Never blocks on the user's terminal, file or pipe, except in write_rest().
class Streams {
 public:
  /// `show_errors`: whether stderr of the ranks is passed on.
  Streams(int ranks, bool show_errors);

  /// Adds to `poller` what to wait for: room for pending output, and bytes of the ranks unless too much is pending.
  /// Both arguments must exist until the poller has called its handlers.
  void watch(std::vector<Process>& ranks, Poller& poller);
  /// Reads the rest in the pipes of a rank that has ended, and closes them. Does not block.
  void drain(Process& rank);

  /// Adds a line of the launcher itself.
  void say(const std::string& line) { put_error(as_said(line)); }
  void put_error(std::string_view data) { stderr_.put(data); }
  /// The end of the rank's stderr if that is not passed on; see Tail::last_words().
  std::string last_words(int rank) const;

  /// True if nothing is pending.
  bool idle() const { return stdout_.idle() && stderr_.idle(); }
  /// Writes what is pending for stderr. Blocks if nothing reads it: for minutes, with `hurried` for seconds, and at
  /// most until a signal arrives.
  void write_rest(Signals& signals, bool hurried);

 private:
  struct Pipes {
    Tail tail;
    LineMarker out, err;
  };

  void take(Process& rank, bool is_err);

  const bool show_errors_;
  std::vector<Pipes> pipes_;
  Sink stdout_, stderr_;
};

}  // namespace tarantella::launch
