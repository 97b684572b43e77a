#pragma once
// The memory in which ranks keep snapshots of training from one attempt of a job to the next. The launcher makes it,
// its ranks inherit it, and it goes with the launcher. Its format is that of keras/snapshots/store.py.

#include <array>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

class SnapshotMemory {
 public:
  /// The variable that tells ranks the numbers of the descriptors.
  static constexpr const char* kVariable = "TNT_SNAPSHOT_FDS";

  /// Two empty files in memory, which children inherit: while one is written, the other stays whole. Errors: kSystem.
  static Result<SnapshotMemory> make();

  /// The value of the variable.
  std::string descriptors() const;

 private:
  std::array<Fd, 2> files_;
};

}  // namespace tarantella::launch
