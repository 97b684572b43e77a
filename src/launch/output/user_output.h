#pragma once
// The launcher's own stdout and stderr: the user's terminal, files or pipes.

#include <string>
#include <vector>

#include "launch/output/frontend.h"
#include "launch/output/sink.h"

namespace tarantella::launch {

class UserOutput : public Frontend {
 public:
  UserOutput();

  void put(bool is_err, std::string_view data) override;
  bool full(bool is_err) const override;
  bool idle() const override { return stdout_.idle() && stderr_.idle(); }
  bool shares_stdio() const override { return true; }
  std::string rank_suffix() const override { return ""; }
  void watch(Poller& poller, std::function<void()> on_instruction) override;
  std::vector<Instruction> instructions() override { return {}; }
  int heartbeat_interval_ms() const override { return -1; }
  void heartbeat() override {}
  bool lost() const override { return false; }
  std::optional<std::string> lost_by_signal(int) const override { return std::nullopt; }
  void send_rank_status(const std::vector<int>&) override {}
  void report_progress() override {}
  int finish(int code, const std::string& message, Signals& signals, bool hurried) override;

  /// Adds a line of the launcher itself.
  void put_message(const std::string& line);
  /// Writes what is pending for stderr, and for stdout if `all`. Blocks if nothing reads it: for minutes, with
  /// `hurried` for seconds, and at most until a signal arrives.
  void flush(Signals& signals, bool hurried, bool all);
  /// The exit code of a job that ends with `code`: another one, with an error message, if output is lost. A reader that
  /// is gone, as of `| head`, is no failure.
  int exit_code_after_output(int code) const;

 private:
  Sink stdout_, stderr_;
};

}  // namespace tarantella::launch
