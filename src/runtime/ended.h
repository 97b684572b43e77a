#pragma once
// Which ranks of a job have ended, and how: their launcher writes it into a small file that all of them inherit, so that
// nobody waits to meet a rank that will not come.

#include <optional>

#include "base/fd.h"

namespace tarantella::runtime {

class Ended {
 public:
  /// The variable that holds the number of the file's descriptor.
  static constexpr const char* kVariable = "TNT_ENDED_FD";

  /// Knows nothing of anybody.
  Ended() = default;
  /// For the launcher: a new file, which its children inherit. One that knows nothing where none can be made.
  static Ended make(int ranks);
  /// For a rank: the launcher's file; one that knows nothing where there is none, or another job's.
  static Ended inherited(int ranks);

  /// -1 if there is no file.
  int fd() const { return file_.get(); }
  /// Says that `rank` has ended with `code`. Any number of times, any thread.
  void tell(int rank, int code) const;
  /// nothing while it runs, or where that is not known. Thread-safe; a look at memory.
  std::optional<int> exit_code(int rank) const;

 private:
  struct Table;

  Table* table() const;

  Fd file_;  ///< the launcher's
  Mapping mapping_;
};

}  // namespace tarantella::runtime
