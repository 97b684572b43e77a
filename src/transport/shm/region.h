#pragma once
// Regions of a node's memory file: where each lies, how it is mapped, and when its memory is given back to the machine.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "transport/node_memory.h"

namespace tarantella::transport {

constexpr size_t kPage = 4096;
constexpr size_t kRegionAlignment = 2 * 1024 * 1024;  // a huge page, where the kernel has them for memfds

/// Where the regions of one ShmMemory lie, so that all its ranks map the same. In shared memory, zeroed at first.
/// Thread-safe, also between processes.
class alignas(64) Table {
 public:
  /// The offset of the k-th region (from 1) in the file, in bytes. The first rank to ask decides: it takes what claim()
  /// returns, in units of kRegionAlignment. Ranks are at most one region apart.
  template <typename Claim>
  size_t offset(uint64_t k, Claim claim) {
    constexpr uint64_t kMask = (uint64_t{1} << kOffsetBits) - 1;
    const uint64_t number = k << kOffsetBits;
    std::atomic<uint64_t>& entry = regions_[k % kEntries];
    uint64_t seen = entry.load(std::memory_order_acquire);
    if ((seen & ~kMask) != number) {
      const uint64_t mine = number | claim();
      if (entry.compare_exchange_strong(seen, mine, std::memory_order_acq_rel)) seen = mine;
    }
    return (seen & kMask) * kRegionAlignment;
  }

 private:
  static constexpr size_t kEntries = 64;
  static constexpr uint64_t kOffsetBits = 40;

  /// Entry k % kEntries is for the k-th region: the low kOffsetBits bits are its offset in units of kRegionAlignment,
  /// the bits above are k.
  std::array<std::atomic<uint64_t>, kEntries> regions_;
};

/// Maps `bytes` of the file from `offset` on; the file grows if it is shorter. Errors: kSystem.
Result<Mapping> map_file(int fd, size_t offset, size_t bytes);

/// How many bytes of the file a region of `bytes` occupies.
size_t region_bytes(size_t bytes);
/// Maps a region that `ranks` ranks map. The last rank to release it gives its memory back to the machine.
/// Errors: kSystem.
Result<Region> map_region(std::shared_ptr<Fd> memory, size_t offset, size_t bytes, int ranks);

}  // namespace tarantella::transport
