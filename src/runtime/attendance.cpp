#include "runtime/attendance.h"

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "runtime/memory.h"

namespace tarantella::runtime {

struct Attendance::Table {
  static constexpr uint64_t kMagic = 0x646e65747461746e;  // "ntattend"

  uint64_t magic;
  uint32_t ranks;

  /// The state of a rank.
  std::atomic<uint32_t>& word(int rank) { return reinterpret_cast<std::atomic<uint32_t>*>(this + 1)[rank]; }
  static size_t bytes(int ranks) { return sizeof(Table) + static_cast<size_t>(ranks) * sizeof(uint32_t); }
};

Attendance::Table* Attendance::table() const { return reinterpret_cast<Table*>(mapping_.bytes().data()); }

Attendance Attendance::make(int ranks) {
  Attendance attendance;
  const size_t bytes = Table::bytes(ranks);
  Fd file = memory_file("tarantella-attendance", 0);
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return attendance;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return attendance;
  attendance.file_ = std::move(file);
  attendance.mapping_ = Mapping(address, bytes);
  attendance.table()->ranks = static_cast<uint32_t>(ranks);
  attendance.table()->magic = Table::kMagic;
  return attendance;
}

Attendance Attendance::inherited(int ranks, int first) {
  Attendance attendance;
  attendance.first_ = first;
  const size_t bytes = Table::bytes(ranks);
  const int file = inherited_file(kVariable, bytes);
  if (file < 0) return attendance;
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return attendance;
  Mapping mapping(address, bytes);
  const auto* table = static_cast<const Table*>(address);
  if (table->magic == Table::kMagic && table->ranks == static_cast<uint32_t>(ranks))
    attendance.mapping_ = std::move(mapping);
  return attendance;
}

void Attendance::tell_join(int rank) const { set_state(rank, kJoined); }

void Attendance::tell_end(int rank, int code) const { set_state(rank, kEnded + code); }

std::optional<int> Attendance::exit_code(int rank) const {
  const int found = state(rank);
  return found < kEnded ? std::nullopt : std::optional(found - kEnded);
}

int Attendance::state(int rank) const {
  if (!is_kept()) return 0;
  return static_cast<int>(table()->word(first_ + rank).load(std::memory_order_acquire));
}

void Attendance::set_state(int rank, int state) const {
  if (is_kept()) table()->word(first_ + rank).store(static_cast<uint32_t>(state), std::memory_order_release);
}

}  // namespace tarantella::runtime
