#include "collective/notification_board.h"

#include "base/hash.h"
#include "base/wait_policy.h"

namespace tarantella::collective {

void NotificationBoard::notify(size_t row, uint64_t key, uint32_t value, uint32_t sequence) {
  NotificationLog& log = rows_[row].log;
  log.append(key, value, sequence);
  memory_.wake(log.count());
}

std::optional<uint32_t> NotificationBoard::find(size_t row, const std::string& name) const {
  return rows_[row].log.last(hash_of(name));
}

Result<uint32_t> NotificationBoard::await(size_t row, int rank, const std::string& name, uint32_t sequence,
                                          const std::function<bool()>& departed,
                                          const std::function<Status()>& check) {
  if (sequence_ != sequence) names_.clear();
  sequence_ = sequence;
  const uint32_t nth = ++names_[name];
  const uint64_t key = hash_of(name);
  const auto place = [&] {
    return text("rank ", memory_.job_rank(memory_.rank()), " waits in ", name, ": rank ", rank);
  };
  Row& other = rows_[row];
  while (true) {
    const uint32_t seen = other.log.count().load(std::memory_order_seq_cst);
    // before the log is read: what was notified before a later call, or before leaving, is in it then
    const bool went_on =
        static_cast<int32_t>(other.sequence.load(std::memory_order_acquire) - sequence) > 0 || departed();
    const NotificationLog::Found found = other.log.find(key, sequence, nth);
    if (found.value && !found.lost) return *found.value;
    if (found.lost) {
      return Status(
          Code::kMismatch,
          text(place(),
               " notified more than 1,000 times since the last collective call, and older notifications are "
               "lost; call a barrier between saves"));
    }
    if (went_on) {
      return Status(
          Code::kMismatch,
          text(place(), " has continued without it; call it on every rank, or on rank ", rank, " alone"));
    }
    TNT_RETURN_IF_ERROR(check());
    memory_.sleep(other.log.count(), seen, WaitPolicy::kCheckInterval);
  }
}

}  // namespace tarantella::collective
