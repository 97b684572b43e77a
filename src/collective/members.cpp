#include "collective/members.h"

namespace tarantella::collective {

Result<std::shared_ptr<Members>> Members::create(std::shared_ptr<transport::Memory> memory) {
  auto table = memory->map(sizeof(Head) + sizeof(Row) * static_cast<size_t>(memory->job_size()));
  if (!table.ok()) return table.status();
  return std::shared_ptr<Members>(new Members(std::move(memory), std::move(table).value()));
}

uint32_t Members::change_bell(int rank) {
  Row& rung = row(rank);
  rung.bell.fetch_add(1, std::memory_order_seq_cst);
  return rung.bell_sleepers.load(std::memory_order_seq_cst) != 0 ? bit_of(rank) : 0;
}

void Members::wake_rung(uint32_t asleep) {
  if (asleep == 0) return;
  head().wakes.fetch_add(1, std::memory_order_seq_cst);
  memory_->wake(head().wakes, asleep);
}

void Members::want_stacks() {
  if (head().wants_stacks.exchange(1, std::memory_order_acq_rel) != 0) return;
  for (int rank = 0; rank < memory_->job_size(); ++rank) ring(rank);
}

void Members::sleep_until_rung(uint32_t seen, Duration at_most) {
  Row& own = row(rank());
  const uint32_t wakes = head().wakes.load(std::memory_order_seq_cst);
  own.bell_sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (bell() == seen) memory_->sleep(head().wakes, wakes, at_most, bit_of(rank()));
  own.bell_sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tarantella::collective
