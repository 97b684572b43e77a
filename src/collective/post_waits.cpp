#include "collective/post_waits.h"

#include "base/hash.h"
#include "collective/group.h"

namespace tarantella::collective {

Result<uint32_t> PostWaits::await(transport::Memory& memory, const Poster& poster, const std::string& name,
                                  uint32_t calls) {
  if (calls_ != calls) names_.clear();
  calls_ = calls;
  const uint32_t nth = ++names_[name];
  const uint64_t key = hash_of(name);
  const auto place = [&] {
    return text("rank ", memory.job_rank(memory.rank()), " waits in ", name, ": rank ", poster.rank);
  };
  while (true) {
    const uint32_t seen = poster.board.count().load(std::memory_order_seq_cst);
    const bool went_on = poster.went_on();  // before the board is read
    const Board::Found found = poster.board.find(key, calls, nth);
    if (found.value && !found.lost) return *found.value;
    if (found.lost) {
      return Status(Code::kMismatch,
                    text(place(),
                         " posted more than 1,000 times since the last collective call, and older posts are "
                         "lost; call a barrier between saves"));
    }
    if (went_on) {
      return Status(Code::kMismatch, text(place(), " goes on without it; call it on every rank, or on rank ",
                                          poster.rank, " alone"));
    }
    TNT_RETURN_IF_ERROR(poster.check());
    memory.sleep(poster.board.count(), seen, Group::kSlice);
  }
}

}  // namespace tarantella::collective
