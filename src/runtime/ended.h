#pragma once
// Which ranks of a job have ended, and how. The launcher writes it into a small file that all ranks inherit, so that no
// rank waits for one that cannot join any more.

#include <optional>

#include "base/fd.h"

namespace tarantella::runtime {

class Ended {
 public:
  /// The variable that holds the number of the file's descriptor.
  static constexpr const char* kVariable = "TNT_ENDED_FD";

  /// Without a file: nothing is known of any rank.
  Ended() = default;
  /// For the launcher: a new file, which its children inherit. Without a file if none can be created.
  static Ended make(int ranks);
  /// For a rank: the launcher's file. Without a file if there is none, or only that of another job.
  static Ended inherited(int ranks);

  /// -1 if there is no file.
  int fd() const { return file_.get(); }
  /// Records that `rank` has ended with `code`. Thread-safe; may be repeated.
  void tell(int rank, int code) const;
  /// The exit code of `rank`; empty while it runs or if that is not known. Thread-safe; only reads memory.
  std::optional<int> exit_code(int rank) const;

 private:
  struct Table;

  Table* table() const;

  Fd file_;  ///< the launcher's
  Mapping mapping_;
};

}  // namespace tarantella::runtime
