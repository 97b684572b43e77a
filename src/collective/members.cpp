#include "collective/members.h"

namespace tarantella::collective {

Result<std::shared_ptr<Members>> Members::create(std::shared_ptr<transport::Memory> memory) {
  auto table = memory->map(sizeof(Row) * static_cast<size_t>(memory->size()));
  if (!table.ok()) return table.status();
  return std::shared_ptr<Members>(new Members(std::move(memory), std::move(table).value()));
}

void Members::ring(int rank) {
  Row& rung = row(rank);
  rung.bell.fetch_add(1, std::memory_order_seq_cst);
  if (rung.bell_sleepers.load(std::memory_order_seq_cst) != 0) wake(rung.bell);
}

void Members::sleep_until_rung(uint32_t seen, Duration at_most) {
  Row& own = row(rank());
  own.bell_sleepers.fetch_add(1, std::memory_order_seq_cst);
  sleep(own.bell, seen, at_most);
  own.bell_sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tarantella::collective
