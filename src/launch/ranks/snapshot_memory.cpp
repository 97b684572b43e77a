#include "launch/ranks/snapshot_memory.h"

#include <cerrno>

#include "runtime/memory.h"

namespace tarantella::launch {

Result<SnapshotMemory> SnapshotMemory::make() {
  SnapshotMemory memory;
  for (Fd& file : memory.files_) {
    file = runtime::make_memfd("tarantella-snapshot", 0);
    if (!file.valid()) return Status::system("memfd_create", errno);
  }
  return memory;
}

std::string SnapshotMemory::descriptors() const {
  return std::to_string(files_[0].get()) + "," + std::to_string(files_[1].get());
}

}  // namespace tarantella::launch
