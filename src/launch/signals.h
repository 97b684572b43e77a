#pragma once
// The launcher's own signals, read from a descriptor, and what its ranks must find as if there were no
// launcher.

#include <signal.h>
#include <sys/resource.h>

#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// What this process was started with and changes for itself; every rank gets it back before exec.
struct Inherited {
  sigset_t mask{};
  struct sigaction on_broken_pipe{}, on_child{};
  rlimit files{};
};

/// From now on SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGTSTP (each unless it was ignored, as
/// under nohup) and SIGCHLD (even so) arrive at the descriptor only, a broken pipe is an errno, and as many
/// files may be open as the hard limit allows: by this process, for ranks find the limit that a single process
/// would find, since programs exist that go through all descriptors, or that select(2) breaks beyond 1,024.
/// One a process, on its only thread.
class Signals {
 public:
  struct Event {
    int number = 0;
    bool from_terminal = false;  ///< typed: the whole foreground process group got it, not only this process
  };

  static Result<Signals> open();

  int fd() const { return fd_.get(); }
  const Inherited& inherited() const { return inherited_; }
  /// The next signal that has arrived; does not wait.
  std::optional<Event> next();

 private:
  Fd fd_;
  Inherited inherited_;
};

/// Gives back what was inherited. Async-signal-safe: for a child between fork and exec.
void restore(const Inherited& inherited);

/// Ends this process as that signal's default action does, but without a core file, so that whoever started
/// it sees what has happened: a shell, for one, ends its loop after Ctrl-C. Where the kernel refuses (process
/// 1 of a container) it exits with 128 + number.
[[noreturn]] void die_of(int number);

/// Whether the signal asks for an end, but leaves time to save work.
bool leaves_time(int number);

/// "9 (SIGKILL)".
std::string signal_name(int number);

}  // namespace tarantella::launch
