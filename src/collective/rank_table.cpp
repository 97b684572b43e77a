#include "collective/rank_table.h"

namespace tarantella::collective {

Result<std::shared_ptr<RankTable>> RankTable::create(std::shared_ptr<transport::NodeMemory> memory) {
  auto table = memory->map(sizeof(Head) + sizeof(Row) * static_cast<size_t>(memory->job_size()));
  if (!table.ok()) return table.status();
  return std::shared_ptr<RankTable>(new RankTable(std::move(memory), std::move(table).value()));
}

uint32_t RankTable::increment_wake_count(int rank) {
  Row& woken = row(rank);
  woken.wake_count.fetch_add(1, std::memory_order_seq_cst);
  return woken.sleepers.load(std::memory_order_seq_cst) != 0 ? bit_of(rank) : 0;
}

void RankTable::wake_sleepers(uint32_t asleep) {
  if (asleep == 0) return;
  head().wakes.fetch_add(1, std::memory_order_seq_cst);
  memory_->wake(head().wakes, asleep);
}

void RankTable::want_stacks() {
  if (head().wants_stacks.exchange(1, std::memory_order_acq_rel) != 0) return;
  for (int rank = 0; rank < memory_->job_size(); ++rank) wake_progress_thread(rank);
}

void RankTable::sleep_until_woken(uint32_t seen, Duration at_most) {
  Row& own = row(rank());
  const uint32_t wakes = head().wakes.load(std::memory_order_seq_cst);
  own.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (wake_count() == seen) memory_->sleep(head().wakes, wakes, at_most, bit_of(rank()));
  own.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tarantella::collective
