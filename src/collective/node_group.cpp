#include "collective/node_group.h"

#include <algorithm>
#include <thread>

#include "base/fixed_text.h"
#include "base/hash.h"
#include "base/pause.h"
#include "collective/stall_detector.h"

namespace tarantella::collective {
namespace {

// For all ranks, also those of other nodes, to show where they are before any of them ends.
constexpr Duration kShowing = 1s;

bool reached(const Word& word, uint32_t target) {
  return static_cast<int32_t>(word.load(std::memory_order_acquire) - target) >= 0;
}

}  // namespace

Result<std::shared_ptr<NodeGroup>> NodeGroup::create(std::unique_ptr<transport::NodeMemory> memory,
                                                     GroupOptions options, std::thread::id creator_thread,
                                                     NodeGroup* parent) {
  std::shared_ptr<transport::NodeMemory> shared = std::move(memory);
  auto rank_table = parent == nullptr ? RankTable::create(shared) : parent->rank_table_;
  if (!rank_table.ok()) return rank_table.status();
  auto control = shared->map(sizeof(Head) + (sizeof(RankSlot) + sizeof(NotificationBoard::Row)) *
                                                static_cast<size_t>(shared->size()));
  const std::string what = parent == nullptr ? "the start of the job" : "the creation of a group";
  if (!control.ok()) return parent == nullptr ? control.status() : parent->fail_in(what, control.status());
  std::shared_ptr<NodeGroup> group(new NodeGroup(std::move(shared), std::move(rank_table).value(), options,
                                                 creator_thread, parent, std::move(control).value()));
  TNT_RETURN_IF_ERROR(group->barrier(what));
  group->dedicated_cores_ = group->memory_->dedicated_cores();
  if (group->size() > options.one_level) {
    const auto caches = group->allgather(group->memory_->cache(), what);
    if (!caches.ok()) return caches.status();
    group->flag_groups_ = FlagGroups(caches.value());
  }
  return group;
}

NodeGroup::NodeGroup(std::shared_ptr<transport::NodeMemory> memory, std::shared_ptr<RankTable> rank_table,
                     GroupOptions options, std::thread::id creator_thread, NodeGroup* parent,
                     transport::Region control)
    : memory_(std::move(memory)),
      rank_table_(std::move(rank_table)),
      rank_(memory_->rank()),
      size_(memory_->size()),
      options_(options),
      creator_thread_(creator_thread),
      parent_(parent),
      control_(std::move(control)),
      failed_by_(reinterpret_cast<Head*>(control_.bytes.data())->failed_by),
      slots_(reinterpret_cast<RankSlot*>(control_.bytes.data() + sizeof(Head))),
      listener_(*rank_table_),
      board_(*memory_, reinterpret_cast<NotificationBoard::Row*>(slots_ + size_)),
      flag_groups_(size_) {
  static_assert(sizeof(Head) % alignof(RankSlot) == 0 &&
                sizeof(RankSlot) % alignof(NotificationBoard::Row) == 0);
}

NodeGroup::~NodeGroup() { board_.set_departed(static_cast<size_t>(rank_)); }

Status NodeGroup::barrier(const std::string& what) {
  TNT_RETURN_IF_ERROR(failure());
  count_round();
  const uint32_t target = ++barriers_;
  publish(slot(rank()).barriers, target);
  for (int other = 0; other < size(); ++other) {
    TNT_RETURN_IF_ERROR(await(other, slot(other).barriers, target, [&what] { return what; }));
  }
  return {};
}

bool NodeGroup::spin(const Word& word, uint32_t target) const {
  for (int i = 0; i < WaitPolicy::kPolls; ++i) {
    if (reached(word, target)) return true;
  }
  if (dedicated_cores_) {
    const Deadline deadline = Deadline::after(WaitPolicy::kSpinBeforeSleep);
    do {
      for (int i = 0; i < WaitPolicy::kPausesPerClockRead; ++i) {
        if (reached(word, target)) return true;
        pause();
      }
    } while (!deadline.passed());
  }
  for (int i = 0; i < WaitPolicy::kYields; ++i) {
    if (reached(word, target)) return true;
    std::this_thread::yield();
  }
  return false;
}

Status NodeGroup::sleep_until(int other, Word& word, uint32_t target, const std::string& what) {
  Word& sleepers = slot(other).sleepers;
  StallDetector detector(*this, WaitKind::kExclusive, is_creator_thread(), what);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  while (status.ok()) {
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - target) >= 0) break;
    memory_->sleep(word, seen, kCheckInterval);
    if (!reached(word, target)) status = detector.check(other);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

Result<std::vector<uint64_t>> NodeGroup::allgather(uint64_t value, const std::string& what) {
  // two values in turn: a rank overwrites one only after all ranks have passed the barrier in between
  const size_t turn = (barriers_ + 1) % 2;
  slot(rank()).values[turn].store(value, std::memory_order_relaxed);
  TNT_RETURN_IF_ERROR(barrier(what));
  std::vector<uint64_t> values;
  for (int other = 0; other < size(); ++other) {
    values.push_back(slot(other).values[turn].load(std::memory_order_relaxed));
  }
  return values;
}

Status NodeGroup::check_memory(size_t bytes, const std::string& what) {
  const uint64_t available = memory_->available_bytes();
  auto all = allgather(bytes <= available ? UINT64_MAX : available, what);
  if (!all.ok()) return all.status();
  const uint64_t least = *std::min_element(all.value().begin(), all.value().end());
  if (least == UINT64_MAX) return {};
  constexpr uint64_t kMiB = 1024 * 1024;
  return {Code::kOutOfMemory,
          text("too little memory for ", what, " of ", size(), " ranks: ", bytes / kMiB + 1,
               " MiB are needed and ", least / kMiB,
               " MiB are left on this machine; use fewer ranks on it or a smaller model")};
}

Result<transport::Region> NodeGroup::map(size_t bytes, const std::string& what) {
  TNT_RETURN_IF_ERROR(check_memory(bytes, what));
  auto region = memory_->map(bytes);
  return region.ok() ? std::move(region) : Result<transport::Region>(fail_in(what, region.status()));
}

void NodeGroup::notify(const std::string& name, uint32_t value) {
  board_.notify(static_cast<size_t>(rank_), hash_of(name), value, rounds_);
}

Result<uint32_t> NodeGroup::wait_notification(int from, const std::string& name) {
  TNT_RETURN_IF_ERROR(failure());
  StallDetector detector(*this, WaitKind::kExclusive, is_creator_thread(), name);
  return board_.await(
      static_cast<size_t>(from), job_rank(from), name, rounds_, [&] { return has_departed(from); },
      [&] { return detector.check(from); });
}

Result<std::optional<uint32_t>> NodeGroup::find_notification(int from, const std::string& name) const {
  TNT_RETURN_IF_ERROR(failure());
  return board_.find(static_cast<size_t>(from), name);
}

Status NodeGroup::fail(const Status& status, int exit_code) {
  if (status.ok()) return failure();
  bool first = false;
  {
    const std::lock_guard lock(failing_);
    uint32_t none = failed_by_.load(std::memory_order_acquire);
    if (none == 0) {
      // the message is complete before failed_by names it, even if this rank dies in between
      RankSlot& own = slot(rank());
      own.code = static_cast<int32_t>(status.code());
      own.exit_code = exit_code;
      write_text(status.message(), own.message);
      first = failed_by_.compare_exchange_strong(none, static_cast<uint32_t>(rank()) + 1,
                                                 std::memory_order_acq_rel);
    }
  }
  if (first) wake_progress_threads_if([](int) { return true; });
  return first ? status : failure();
}

bool NodeGroup::check_stall_timeout(Duration waited, Duration delay) {
  if (waited < options_.stall + delay) return false;
  rank_table_->want_stacks();
  return waited >= options_.stall + delay + kShowing;
}

Status NodeGroup::fail_stalled(const std::string& place, const std::string& ranks, Duration waited) {
  return fail(
      {Code::kTimeout, text(place, ranks, " did not arrive within ", static_cast<int>(in_seconds(waited)),
                            " s (limit: TNT_STALL_TIMEOUT); the stacks of all ranks above show where "
                            "each of them is")});
}

Status NodeGroup::fail_in(const std::string& what, const Status& error) {
  return fail({error.code(), text("rank ", job_rank(rank()), " failed in ", what, ": ", error.message())});
}

Status NodeGroup::failure() const {
  const uint32_t by = failed_by_.load(std::memory_order_acquire);
  if (by == 0) {
    if (closed_.load(std::memory_order_acquire)) return {Code::kPeerLost, "this rank has closed its context"};
    return parent_ == nullptr ? Status() : parent_->failure();
  }
  return cause_of(by);
}

Status NodeGroup::first_cause() const {
  const uint32_t by = failed_by_.load(std::memory_order_acquire);
  return by == 0 ? Status() : cause_of(by);
}

int NodeGroup::exit_code() const {
  const uint32_t by = failed_by_.load(std::memory_order_acquire);
  return by == 0 ? 0 : slot(static_cast<int>(by) - 1).exit_code;
}

Status NodeGroup::cause_of(uint32_t by) const {
  const RankSlot& first = slot(static_cast<int>(by) - 1);
  return {static_cast<Code>(first.code), first.message.data()};
}

bool NodeGroup::has_departed(int rank) const {
  if (board_.has_departed(static_cast<size_t>(rank)) || memory_->has_departed(rank)) return true;
  if (parent_ == nullptr) return false;
  // a rank may leave the parent before it has a slot in this group
  int of_parent = 0;
  while (parent_->job_rank(of_parent) != job_rank(rank)) ++of_parent;
  return parent_->has_departed(of_parent);
}

RankState NodeGroup::state_of(int rank) const {
  if (has_departed(rank)) return RankState::kDeparted;
  if (!memory_->has_ended(rank)) return RankState::kAlive;
  return has_departed(rank) ? RankState::kDeparted : RankState::kDead;
}

void NodeGroup::close() {
  closed_.store(true);
  listener_.close();
}

}  // namespace tarantella::collective
