#pragma once
// The memory in which ranks keep snapshots of training from one attempt of a job to the next. The launcher of a host
// makes it, its ranks inherit it, and it goes with the launcher. Ranks write it: see keras/snapshots/store.py.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// Two files in memory: while one is written, the other stays whole. A whole one ends with kMark and its sequence
/// number, a little-endian 64-bit integer from 1 on; ranks take a new number for each snapshot. Not thread-safe.
class SnapshotMemory {
 public:
  /// The variable that tells ranks the numbers of the descriptors.
  static constexpr const char* kVariable = "TNT_SNAPSHOT_FDS";
  static constexpr std::string_view kMark = "TNTSNAP1";

  /// Two empty files, which children inherit. Errors: kSystem.
  static Result<SnapshotMemory> make();

  /// The value of the variable.
  std::string descriptors() const;

  /// The sequence number of the newest whole snapshot, 0 without one.
  uint64_t newest() const;
  /// Up to `bytes` bytes of the newest from `offset` on; empty at its end.
  std::string read_newest(off_t offset, size_t bytes) const;
  /// Empties the older file.
  void clear_older();
  /// Appends to the older file. Once that is whole and newer, it is the newest. False if there is no memory for it.
  bool append_to_older(std::string_view bytes);

 private:
  size_t newest_index() const;

  std::array<Fd, 2> files_;
};

}  // namespace tarantella::launch
