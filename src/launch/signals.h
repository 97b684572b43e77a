#pragma once
// The launcher's signals, read from a descriptor, and the signal settings and limits that its ranks get back.

#include <signal.h>
#include <sys/resource.h>

#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// Settings with which this process was started and which it changes for itself. Every rank gets them back before exec.
struct Inherited {
  sigset_t mask{};
  struct sigaction on_broken_pipe{}, on_long_file{}, on_child{};
  rlimit files{};
};

/// After open(), SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGTSTP arrive at the descriptor only, each
/// unless it was ignored, as under nohup; so does SIGCHLD in any case. A broken pipe and a file beyond RLIMIT_FSIZE are
/// errnos. This process may open as many files as the hard limit allows. Ranks get the limit of before: some programs
/// go through all descriptors, and select(2) fails above 1,024. For one object per process, on its only thread.
class Signals {
 public:
  struct Event {
    int number = 0;
    bool from_terminal = false;  ///< a key: the whole foreground process group got it, not only this process
  };

  /// Errors: kSystem.
  static Result<Signals> open();

  int fd() const { return fd_.get(); }
  const Inherited& inherited() const { return inherited_; }
  /// The next signal that has arrived, if there is one. Does not block.
  std::optional<Event> next();

 private:
  Fd fd_;
  Inherited inherited_;
};

/// Restores the inherited settings. Async-signal-safe: for a child between fork and exec.
void restore(const Inherited& inherited);

/// Ends this process by signal `number`, without a core file, so that its parent sees the signal: a shell, for example,
/// ends its loop after Ctrl-C. If the kernel refuses (process 1 of a container), exits with 128 + `number`.
[[noreturn]] void die_of(int number);

/// Stops this process as the stop key does, until a shell resumes it. Returns at once where no shell is there to do so.
/// After Signals::open().
void stop_until_resumed();

/// Whether the signal asks for an end but leaves time to save work: SIGTERM and SIGHUP.
bool leaves_time(int number);

/// The signal in messages: "9 (SIGKILL)".
std::string signal_name(int number);

}  // namespace tarantella::launch
