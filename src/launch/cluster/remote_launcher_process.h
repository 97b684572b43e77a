#pragma once
// The running mpiexec or srun that starts the agents.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launch/output/line_filters.h"
#include "launch/ranks/orphan_reaper.h"
#include "launch/system/poller.h"
#include "launch/system/process.h"
#include "launch/system/program.h"

namespace tarantella::launch {

class RemoteLauncherProcess {
 public:
  /// `on_output` gets what it prints, as it comes.
  explicit RemoteLauncherProcess(std::function<void(std::string_view)> on_output)
      : on_output_(std::move(on_output)) {}

  /// Starts it without stdin: what an MPI does with it, and with what nobody reads, differs. Errors: kSystem.
  Status start(const Command& command, const std::vector<std::string>& environment,
               const InheritedSettings& inherited);

  pid_t pid() const { return process_.pid(); }
  /// Adds what it prints and its end to `poller`.
  void watch(Poller& poller);
  /// How it ended, once. Reads the rest of its output, for up to 300 ms: its remote shells may end later.
  std::optional<Exit> ended();
  /// The end of its output, see Tail::excerpt().
  std::string output_excerpt() const { return output_tail_.excerpt(); }

  /// Ends it: waits for `timeout`, then kills it, and what it leaves behind after `timeout_for_shells`. Blocks for
  /// some seconds more if it waits for a dead disk, which no signal ends.
  void end(Duration timeout, Duration timeout_for_shells, const OrphanReaper& orphan_reaper);

 private:
  void read();

  const std::function<void(std::string_view)> on_output_;
  Fd null_;
  Process process_;
  std::optional<Exit> exit_;
  Tail output_tail_;
};

}  // namespace tarantella::launch
