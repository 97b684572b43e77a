#pragma once
// The way of stdout and stderr from the ranks to the user.

#include <string>
#include <string_view>
#include <vector>

#include "launch/output.h"
#include "launch/poller.h"
#include "launch/process.h"
#include "launch/say.h"
#include "launch/signals.h"

namespace tarantella::launch {

/// Passes on, marked by rank, what is to be shown of the ranks' pipes, and keeps the end of what is not. Never waits
/// for the user's reader, except in write_rest().
class Streams {
 public:
  /// `show_errors`: stderr of every rank is passed on.
  Streams(int ranks, bool show_errors);

  /// Waits for room at the user's side and, unless too much is pending there, for bytes of the ranks. Both must live
  /// until the poller has handled what came.
  void watch(std::vector<Process>& ranks, Poller& poller);
  /// What is left in the pipes of a rank that has ended; closes them.
  void drain(Process& rank);

  /// A line of the launcher's own.
  void say(const std::string& line) { put_error(as_said(line)); }
  void put_error(std::string_view data) { stderr_.put(data); }
  /// The end of what the rank wrote on stderr, where that is not passed on: see Tail.
  std::string last_words(int rank) const;

  /// The user's side has taken everything.
  bool idle() const { return stdout_.idle() && stderr_.idle(); }
  /// Writes what is left for stderr. Waits for a reader who reads nothing: for minutes, `hurried` for seconds, and at
  /// most until a signal comes.
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
