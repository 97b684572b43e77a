#pragma once
// The launcher's signals, read from a descriptor, and the inherited signal settings and limits, restored for ranks.

#include <signal.h>
#include <sys/resource.h>

#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// Settings that this process has inherited and changes for itself. They are restored in every rank before exec.
struct InheritedSettings {
  sigset_t mask{};
  struct sigaction sigpipe{}, sigxfsz{}, sigchld{};
  rlimit open_files{};
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
  const InheritedSettings& inherited() const { return inherited_; }
  /// The next signal that has arrived, if there is one. Does not block.
  std::optional<Event> next();
  /// Has the next call of next() return this one again. The descriptor does not become readable for it.
  void put_back(const Event& event) { put_back_ = event; }

 private:
  std::optional<Event> put_back_;
  Fd fd_;
  InheritedSettings inherited_;
};

/// Restores the inherited settings. Async-signal-safe: for a child between fork and exec.
void restore(const InheritedSettings& inherited);

/// Ends this process by signal `number`, without a core file, so that its parent sees the signal: a shell, for example,
/// ends its loop after Ctrl-C. If the kernel refuses (process 1 of a container), exits with 128 + `number`.
[[noreturn]] void die_by_signal(int number);

/// Stops this process as the stop key does, until a shell resumes it. Returns at once where no shell is there to do so.
/// After Signals::open().
void suspend_until_resumed();

/// Whether a process that gets the signal has time to save its work before it ends: SIGTERM and SIGHUP.
bool leaves_time_to_save(int number);

/// The signal in messages: "9 (SIGKILL)".
std::string signal_name(int number);

}  // namespace tarantella::launch
