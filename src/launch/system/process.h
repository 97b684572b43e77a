#pragma once
// One rank as a process of this machine.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launch/system/program.h"
#include "launch/system/signals.h"

namespace tarantella::launch {

enum class Stdio { kInherit, kDevNull, kPipe, kTerminal, kDescriptor };

/// How to start a rank. Owns nothing: everything must exist until spawn() returns.
struct SpawnRequest {
  int rank = 0;
  const Command* command = nullptr;
  const std::vector<std::string>* environment = nullptr;
  const std::vector<int>* cpus = nullptr;        ///< null: not bound
  const std::vector<int>* numa_nodes = nullptr;  ///< for memory; null: not bound
  bool warns = true;                             ///< on the rank's stderr, if its memory cannot be bound
  const InheritedSettings* inherited = nullptr;
  bool own_process_group = true;  ///< false: it stays in the launcher's process group
  Stdio in = Stdio::kDevNull;
  Stdio out = Stdio::kDevNull;
  Stdio err = Stdio::kPipe;  ///< kTerminal: one like the launcher's stderr
  int in_fd = -1;            ///< used if `in` is kDescriptor
  int null_fd = -1;          ///< /dev/null, open for reading and writing
  int report_fd = -1;        ///< the write end of a ReportPipe, which stays open in the program
  int extra_fd = -1;         ///< another descriptor that stays open in the program
  int failure_fd = -1;       ///< close-on-exec pipe that gets an ExecFailure if the program cannot be started
};

/// What a child writes if it cannot exec.
struct ExecFailure {
  int rank = 0;
  int error = 0;
};

/// How a process ended.
struct Exit {
  bool by_signal = false;
  int value = 0;  ///< exit code, or signal number

  bool ok() const { return !by_signal && value == 0; }
  /// The exit code in a shell: 128 + signal number after a signal.
  int code() const { return by_signal ? 128 + value : value; }
};

/// The error of pidfd_open.
Status no_pidfd(int error);
/// The error of a job whose processes the machine does not let start. `what` could not be started.
Status cannot_start(const std::string& what, const Status& cause);

/// Owns the descriptors, not the process: after the destructor it runs on until this process ends, when the kernel
/// sends it SIGKILL.
class Process {
 public:
  /// Forks and execs. Call it on the main thread, since the child dies with the thread that made it. If the program
  /// cannot be started, failure_fd gets an ExecFailure, and this call succeeds. Errors: kSystem.
  static Result<Process> spawn(const SpawnRequest& request);

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool has_own_process_group() const { return has_own_process_group_; }
  bool alive() const { return pidfd_.valid(); }
  int pidfd() const { return pidfd_.get(); }
  /// Non-blocking read ends; -1 for streams that are not pipes or are closed.
  int out() const { return out_.get(); }
  int err() const { return err_.get(); }
  void close_out() { out_ = Fd(); }
  void close_err() { err_ = Fd(); }

  /// Sends `number` to the process group (to the process alone, if it has no group of its own).
  void signal(int number) const;
  /// Sends `number` to the process, not to its children: to save its work, a rank may need its data workers.
  void signal_alone(int number) const;
  /// The process group of the process.
  pid_t pgid() const;
  /// How the process ended, if it has. Does not block and does not reap it, so no other process can get its number or
  /// its group's. If it was reaped elsewhere, which nothing should do, it counts as failed.
  std::optional<Exit> ended() const;
  /// Call it after ended(): kills the rest of the process's own group, if it has one, and reaps the process.
  void reap();

 private:
  int rank_ = 0;
  pid_t pid_ = -1;
  bool has_own_process_group_ = true;
  Fd pidfd_, out_, err_;
};

}  // namespace tarantella::launch
