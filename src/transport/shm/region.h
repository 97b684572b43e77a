#pragma once
// Parts of the memory file of a node: where each lies, mapped, and given back to the machine.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "transport/memory.h"

namespace tarantella::transport {

constexpr size_t kPage = 4096;
constexpr size_t kRegionAlignment = 2 * 1024 * 1024;  // a huge page, where the kernel has them for memfds

/// What the ranks of one ShmMemory share to map the same regions. Lies in shared memory, zeroed at first.
class alignas(64) Table {
 public:
  /// Where the k-th region (from 1) lies in the file: the first rank to ask decides, and takes what claim() returns, in
  /// units of kRegionAlignment. Ranks are at most one region apart.
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

  /// Of the k-th region, at k % kEntries: k above kOffsetBits bits of its offset in units of kRegionAlignment.
  std::array<std::atomic<uint64_t>, kEntries> regions_;
};

/// Maps a part of the file, which grows where it must. Errors: kSystem.
Result<Mapping> map_file(int fd, size_t offset, size_t bytes);

/// Bytes of the file that a region of `bytes` takes.
size_t region_bytes(size_t bytes);
/// Maps a region that `ranks` ranks map; the last one to let go gives its memory back. Errors: kSystem.
Result<Region> map_region(std::shared_ptr<Fd> memory, size_t offset, size_t bytes, int ranks);

}  // namespace tarantella::transport
