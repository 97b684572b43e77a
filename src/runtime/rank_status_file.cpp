#include "runtime/rank_status_file.h"

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "runtime/memory.h"

namespace tarantella::runtime {

struct RankStatusFile::Table {
  static constexpr uint64_t kMagic = 0x646e65747461746e;  // "ntattend"

  uint64_t magic;
  uint32_t ranks;

  /// The state of a rank.
  std::atomic<uint32_t>& word(int rank) { return reinterpret_cast<std::atomic<uint32_t>*>(this + 1)[rank]; }
  static size_t bytes(int ranks) { return sizeof(Table) + static_cast<size_t>(ranks) * sizeof(uint32_t); }
};

RankStatusFile::Table* RankStatusFile::table() const {
  return reinterpret_cast<Table*>(mapping_.bytes().data());
}

RankStatusFile RankStatusFile::make(int ranks) {
  RankStatusFile made;
  const size_t bytes = Table::bytes(ranks);
  Fd file = make_memfd("tarantella-rank-status", 0);
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return made;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return made;
  made.file_ = std::move(file);
  made.mapping_ = Mapping(address, bytes);
  made.table()->ranks = static_cast<uint32_t>(ranks);
  made.table()->magic = Table::kMagic;
  return made;
}

RankStatusFile RankStatusFile::inherited(int ranks, int first) {
  RankStatusFile made;
  made.first_ = first;
  const size_t bytes = Table::bytes(ranks);
  const int file = inherited_file(kVariable, bytes);
  if (file < 0) return made;
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return made;
  Mapping mapping(address, bytes);
  const auto* table = static_cast<const Table*>(address);
  if (table->magic == Table::kMagic && table->ranks == static_cast<uint32_t>(ranks))
    made.mapping_ = std::move(mapping);
  return made;
}

void RankStatusFile::set_joined(int rank) const { set_state(rank, kJoined); }

void RankStatusFile::set_ended(int rank, int code) const { set_state(rank, kEnded + code); }

std::optional<int> RankStatusFile::exit_code(int rank) const {
  const int found = state(rank);
  return found < kEnded ? std::nullopt : std::optional(found - kEnded);
}

int RankStatusFile::state(int rank) const {
  if (!exists()) return 0;
  return static_cast<int>(table()->word(first_ + rank).load(std::memory_order_acquire));
}

void RankStatusFile::set_state(int rank, int state) const {
  if (exists()) table()->word(first_ + rank).store(static_cast<uint32_t>(state), std::memory_order_release);
}

}  // namespace tarantella::runtime
