#pragma once
// How stdout and stderr of the ranks reach the user.

#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/options.h"
#include "launch/output/frontend.h"
#include "launch/output/line_filters.h"
#include "launch/output/log_files.h"
#include "launch/system/message.h"
#include "launch/system/poller.h"
#include "launch/system/process.h"

namespace tarantella::launch {

/// Passes on what the user should see of the ranks' pipes: of all ranks, each line prefixed with its rank, or of
/// rank 0, as it is. Keeps the end of the rest, and writes everything to the logs. Never blocks on the user's terminal,
/// file or pipe.
class Streams {
 public:
  /// For `ranks` ranks of this machine, the first of which is rank `first` of the job. `drops_startup_lines`: see
  /// StartupLineFilter; the logs have them. `logs` and `frontend` must outlive it.
  Streams(int ranks, int first, const Options& options, bool drops_startup_lines, LogFiles& logs,
          Frontend& frontend);

  /// Adds to `poller` what to wait for: bytes of the ranks, unless too much is pending.
  /// Both arguments must exist until the poller has called its handlers.
  void watch(std::vector<Process>& ranks, Poller& poller);
  /// Reads the rest in the pipes of a rank that has ended, and closes them. Does not block.
  void drain(Process& rank);

  /// Adds a line of the launcher itself.
  void put_message(const std::string& line) { put(true, message_line(line)); }
  /// The end of a rank's stderr if that is not passed on, see Tail::excerpt(). `rank` counts on this machine.
  std::string stderr_excerpt(int rank) const;

 private:
  struct Pipes {
    Tail tail;
    StartupLineFilter startup;
    LinePrefixer out, err;
  };

  void read_from(Process& rank, bool is_err);
  void forward(int rank, bool is_err, std::string_view data);
  void show(int rank, bool is_err, std::string_view data);
  void put(bool is_err, std::string_view data);

  const bool prefixes_output_, prefixes_errors_;  ///< those of all ranks are passed on
  const bool drops_startup_lines_;
  const int first_;
  LogFiles& logs_;
  Frontend& frontend_;
  std::vector<Pipes> pipes_;
};

}  // namespace tarantella::launch
