#pragma once
// The memory of the timelines of a job's ranks. The launcher makes it, the ranks inherit it, and the launcher reads it
// when they have ended, however they have: nothing is in a file before.

#include <optional>

#include "base/fd.h"
#include "base/status.h"
#include "timeline/timeline.h"

namespace tarantella::timeline {

/// The records that a rank may make: 16 MiB of them.
constexpr size_t kRecords = size_t{1} << 18;

class Memory {
 public:
  /// The variable that holds the number of the memory's descriptor.
  static constexpr const char* kVariable = "TNT_TIMELINE_FD";

  Memory() = default;
  /// For the launcher: new memory, which its children inherit, with time that counts from now on. Errors: kSystem.
  static Result<Memory> make(int ranks);
  /// For a rank: its part of the launcher's memory. Empty if there is none, or only that of another job.
  static std::optional<Mapping> inherited(int rank, int ranks);
  /// Memory for a process that has no launcher. Errors: kSystem.
  static Result<Mapping> own();

  /// -1 if there is no memory.
  int fd() const { return file_.get(); }
  /// The part of a rank. Errors: kSystem.
  Result<Mapping> part(int rank) const;

 private:
  Fd file_;
};

}  // namespace tarantella::timeline
