#pragma once
// One rank as a process of this machine.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launch/command.h"
#include "launch/signals.h"

namespace tarantella::launch {

enum class Stream { kInherit, kDrop, kPipe, kGiven };

/// How a rank is to be started. Nothing is owned: all must live until spawn returns.
struct SpawnRequest {
  int rank = 0;
  const Command* command = nullptr;
  const std::vector<std::string>* environment = nullptr;
  const std::vector<int>* cpus = nullptr;  ///< null: not bound
  const Inherited* inherited = nullptr;
  bool own_group = true;  ///< else it stays in the launcher's process group
  Stream in = Stream::kDrop;
  Stream out = Stream::kDrop;
  Stream err = Stream::kPipe;
  int in_fd = -1;       ///< where `in` is kGiven
  int null_fd = -1;     ///< /dev/null, open for both ways
  int report_fd = -1;   ///< of a ReportPipe: stays open in the program
  int failure_fd = -1;  ///< close-on-exec pipe that gets an ExecFailure if the program cannot be started
};

/// What a child that could not exec writes.
struct ExecFailure {
  int rank = 0;
  int error = 0;
};

/// How a process ended.
struct Exit {
  bool by_signal = false;
  int value = 0;  ///< exit code, or signal number

  bool ok() const { return !by_signal && value == 0; }
  /// As a shell would say it: 128 + signal.
  int code() const { return by_signal ? 128 + value : value; }
};

/// Owns the descriptors, not the process: one that is dropped runs on until this process ends (and it then
/// gets SIGKILL from the kernel).
class Process {
 public:
  /// Forks and execs; must be called on the main thread (the child dies with the thread that made it). That
  /// the program could not be started shows up in failure_fd, not here.
  static Result<Process> spawn(const SpawnRequest& request);

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool own_group() const { return own_group_; }
  bool alive() const { return pidfd_.valid(); }
  int pidfd() const { return pidfd_.get(); }
  /// Read ends, not blocking; -1 for streams that are not pipes, or that have been closed.
  int out() const { return out_.get(); }
  int err() const { return err_.get(); }
  void close_out() { out_ = Fd(); }
  void close_err() { err_ = Fd(); }

  /// Sends `number` to the process group (to the process alone, if it has no group of its own).
  void signal(int number) const;
  /// Spares the process's children: a rank that is to save its work may need its data workers for that.
  void signal_alone(int number) const;
  /// The process group that it is in.
  pid_t group() const;
  /// How it ended, if it has. Does not wait, nor collect: its number, and its group's, stay its own. One that
  /// somebody else has collected (nobody should) counts as failed.
  std::optional<Exit> ended() const;
  /// Of one that has ended: kills what is left of a group of its own, and collects it.
  void collect();

 private:
  int rank_ = 0;
  pid_t pid_ = -1;
  bool own_group_ = true;
  Fd pidfd_, out_, err_;
};

}  // namespace tarantella::launch
