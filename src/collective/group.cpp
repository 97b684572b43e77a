#include "collective/group.h"

#include <algorithm>
#include <thread>

#include "base/fixed_text.h"
#include "base/hash.h"
#include "base/pause.h"
#include "collective/watch.h"

namespace tarantella::collective {
namespace {

constexpr int kEagerSpins = 300;  // without a pause: one takes as long as a small message
// About as long as falling asleep and waking up. By the clock: a pause takes 10 to 140 cycles, by processor.
constexpr Duration kSpin = 40us;
constexpr int kPausesALook = 64;  // at the clock
constexpr int kYields = 50;
// For all ranks, also those of other nodes, to show where they are before any of them ends.
constexpr Duration kShowing = 1s;

bool reached(const Word& word, uint32_t target) {
  return static_cast<int32_t>(word.load(std::memory_order_acquire) - target) >= 0;
}

}  // namespace

Result<std::shared_ptr<Group>> Group::create(std::unique_ptr<transport::Memory> memory, GroupOptions options,
                                             std::thread::id caller, Group* parent) {
  std::shared_ptr<transport::Memory> shared = std::move(memory);
  auto members = parent == nullptr ? Members::create(shared) : parent->members_;
  if (!members.ok()) return members.status();
  auto control = shared->map(sizeof(Head) + sizeof(Seat) * static_cast<size_t>(shared->size()));
  const std::string what = parent == nullptr ? "the start of the job" : "the creation of a group";
  if (!control.ok()) return parent == nullptr ? control.status() : parent->fail_in(what, control.status());
  std::shared_ptr<Group> group(new Group(std::move(shared), std::move(members).value(), options, caller,
                                         parent, std::move(control).value()));
  TNT_RETURN_IF_ERROR(group->barrier(what));
  group->own_cores_ = group->memory_->own_cores();
  if (group->size() > options.one_level) {
    const auto caches = group->gather(group->memory_->cache(), what);
    if (!caches.ok()) return caches.status();
    group->blocks_ = Blocks(caches.value());
  }
  return group;
}

Group::Group(std::shared_ptr<transport::Memory> memory, std::shared_ptr<Members> members,
             GroupOptions options, std::thread::id caller, Group* parent, transport::Region control)
    : memory_(std::move(memory)),
      members_(std::move(members)),
      rank_(memory_->rank()),
      size_(memory_->size()),
      options_(options),
      caller_(caller),
      parent_(parent),
      control_(std::move(control)),
      failed_by_(reinterpret_cast<Head*>(control_.bytes.data())->failed_by),
      seats_(reinterpret_cast<Seat*>(control_.bytes.data() + sizeof(Head))),
      blocks_(size_) {
  static_assert(sizeof(Head) % alignof(Seat) == 0);
}

Group::~Group() { seat(rank()).left.store(1, std::memory_order_release); }

Status Group::barrier(const std::string& what) {
  TNT_RETURN_IF_ERROR(failure());
  count_call();
  const uint32_t target = ++step_;
  signal(seat(rank()).step, target);
  for (int other = 0; other < size(); ++other) {
    TNT_RETURN_IF_ERROR(await(other, seat(other).step, target, [&what] { return what; }));
  }
  return {};
}

bool Group::spin(const Word& word, uint32_t target) const {
  for (int i = 0; i < kEagerSpins; ++i) {
    if (reached(word, target)) return true;
  }
  if (own_cores_) {
    const Deadline deadline = Deadline::after(kSpin);
    do {
      for (int i = 0; i < kPausesALook; ++i) {
        if (reached(word, target)) return true;
        pause();
      }
    } while (!deadline.passed());
  }
  for (int i = 0; i < kYields; ++i) {
    if (reached(word, target)) return true;
    std::this_thread::yield();
  }
  return false;
}

Status Group::sleep_until(int other, Word& word, uint32_t target, const std::string& what) {
  Word& sleepers = seat(other).sleepers;
  Watch watch(*this, WaitFor::kCall, is_caller(), what);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  while (status.ok()) {
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - target) >= 0) break;
    memory_->sleep(word, seen, kSlice);
    if (!reached(word, target)) status = watch.check(other);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

Result<std::vector<uint64_t>> Group::gather(uint64_t value, const std::string& what) {
  // two places in turn: a rank overwrites one only after all ranks have passed the barrier in between
  const size_t place = (step_ + 1) % 2;
  seat(rank()).value[place].store(value, std::memory_order_relaxed);
  TNT_RETURN_IF_ERROR(barrier(what));
  std::vector<uint64_t> values;
  for (int other = 0; other < size(); ++other) {
    values.push_back(seat(other).value[place].load(std::memory_order_relaxed));
  }
  return values;
}

Status Group::check_room(size_t bytes, const std::string& what) {
  const uint64_t room = memory_->room();
  auto rooms = gather(bytes <= room ? UINT64_MAX : room, what);
  if (!rooms.ok()) return rooms.status();
  const uint64_t least = *std::min_element(rooms.value().begin(), rooms.value().end());
  if (least == UINT64_MAX) return {};
  constexpr uint64_t kMiB = 1024 * 1024;
  return {Code::kOutOfMemory,
          text("too little memory for ", what, " of ", size(), " ranks: ", bytes / kMiB + 1,
               " MiB are needed and ", least / kMiB,
               " MiB are left on this machine; use fewer ranks on it or a smaller model")};
}

Result<transport::Region> Group::map(size_t bytes, const std::string& what) {
  TNT_RETURN_IF_ERROR(check_room(bytes, what));
  auto region = memory_->map(bytes);
  return region.ok() ? std::move(region) : Result<transport::Region>(fail_in(what, region.status()));
}

void Group::post(const std::string& name, uint32_t value) {
  Board& board = seat(rank()).board;
  board.post(hash_of(name), value, meetings_);
  memory_->wake(board.count());
}

Result<uint32_t> Group::await_post(int from, const std::string& name) {
  TNT_RETURN_IF_ERROR(failure());
  Seat& other = seat(from);
  Watch watch(*this, WaitFor::kCall, is_caller(), name);
  // a rank posts before its next call, and before it leaves
  const Poster poster{other.board, job_rank(from),
                      [&] { return reached(other.meetings, meetings_ + 1) || has_left(from); },
                      [&] { return watch.check(from); }};
  return post_waits_.await(*memory_, poster, name, meetings_);
}

Result<std::optional<uint32_t>> Group::find_post(int from, const std::string& name) const {
  TNT_RETURN_IF_ERROR(failure());
  return seat(from).board.last(hash_of(name));
}

Status Group::fail(const Status& status, int exit_code) {
  if (status.ok()) return failure();
  bool first = false;
  {
    const std::lock_guard lock(failing_);
    uint32_t none = failed_by_.load(std::memory_order_acquire);
    if (none == 0) {
      // the message is complete before failed_by names it, even if this rank dies in between
      Seat& own = seat(rank());
      own.code = static_cast<int32_t>(status.code());
      own.exit_code = exit_code;
      write_text(status.message(), own.message);
      first = failed_by_.compare_exchange_strong(none, static_cast<uint32_t>(rank()) + 1,
                                                 std::memory_order_acq_rel);
    }
  }
  if (first) ring_if([](int) { return true; });
  return first ? status : failure();
}

bool Group::stalls(Duration waited, Duration later) {
  if (waited < options_.stall + later) return false;
  members_->want_stacks();
  return waited >= options_.stall + later + kShowing;
}

Status Group::fail_stalled(const std::string& place, const std::string& ranks, Duration waited) {
  return fail({Code::kTimeout, text(place, ranks, " did not come for ", static_cast<int>(in_seconds(waited)),
                                    " s (limit: TNT_STALL_TIMEOUT); the stacks of all ranks above show where "
                                    "each of them is")});
}

Status Group::fail_in(const std::string& what, const Status& error) {
  return fail({error.code(), text("rank ", job_rank(rank()), " failed in ", what, ": ", error.message())});
}

Status Group::failure() const {
  const uint32_t by = failed_by_.load(std::memory_order_acquire);
  if (by == 0) {
    if (closed_.load(std::memory_order_acquire)) return {Code::kPeerLost, "this rank has closed its context"};
    return parent_ == nullptr ? Status() : parent_->failure();
  }
  return cause_of(by);
}

Status Group::first_cause() const {
  const uint32_t by = failed_by_.load(std::memory_order_acquire);
  return by == 0 ? Status() : cause_of(by);
}

int Group::exit_code() const {
  const uint32_t by = failed_by_.load(std::memory_order_acquire);
  return by == 0 ? 0 : seat(static_cast<int>(by) - 1).exit_code;
}

Status Group::cause_of(uint32_t by) const {
  const Seat& first = seat(static_cast<int>(by) - 1);
  return {static_cast<Code>(first.code), first.message.data()};
}

bool Group::has_left(int rank) const {
  if (seat(rank).left.load(std::memory_order_acquire) != 0 || memory_->has_left(rank)) return true;
  if (parent_ == nullptr) return false;
  // a rank may leave the parent before it has a seat in this group
  int of_parent = 0;
  while (parent_->job_rank(of_parent) != job_rank(rank)) ++of_parent;
  return parent_->has_left(of_parent);
}

Presence Group::presence(int rank) const {
  if (has_left(rank)) return Presence::kLeft;
  if (!memory_->has_ended(rank)) return Presence::kHere;
  return has_left(rank) ? Presence::kLeft : Presence::kGone;
}

void Group::close() {
  closed_.store(true);
  if (!listens_.load()) return;
  Word& asked = members_->place(members_->rank()).asked;
  asked.fetch_add(1);
  members_->wake(asked);
}

Status Group::await_question(uint32_t& seen) {
  Place& own = members_->place(members_->rank());
  listens_.store(true);
  own.listens.store(1);
  while (!closed_.load()) {
    const uint32_t asked = own.asked.load();
    if (asked != seen) {
      seen = asked;
      return {};
    }
    if (!closed_.load()) members_->sleep(own.asked, asked, kForever);
  }
  own.listens.store(0);
  return {Code::kPeerLost, "this rank has closed its context"};
}

void Group::tell_place(const std::string& place) { tell(members_->place(members_->rank()), place); }

}  // namespace tarantella::collective
