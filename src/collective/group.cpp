#include "collective/group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/hash.h"
#include "base/log.h"

namespace tarantella::collective {
namespace {

constexpr int kEagerSpins = 300;  // without a pause, which takes as long as a small message
constexpr int kSpins = 2000;
constexpr int kYields = 50;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool reached(const Word& word, uint32_t target) {
  return static_cast<int32_t>(word.load(std::memory_order_acquire) - target) >= 0;
}

size_t index_of(Wait kind) { return kind == Wait::kCall ? 0 : 1; }

const char* name_of(Wait kind) { return kind == Wait::kCall ? "a blocking call" : "gradients"; }

}  // namespace

Result<std::shared_ptr<Group>> Group::create(std::unique_ptr<transport::Link> link, GroupOptions options) {
  const size_t bytes = sizeof(Failure) + sizeof(Seat) * static_cast<size_t>(link->size());
  auto control = link->map(bytes);
  if (!control.ok()) return control.status();
  std::shared_ptr<Group> group(new Group(std::move(link), options, std::move(control).value()));
  TNT_RETURN_IF_ERROR(group->sync("start"));
  group->limit_ = group->options_.timeout;
  group->own_cores_ = group->link_->own_cores();
  return group;
}

Group::Group(std::unique_ptr<transport::Link> link, GroupOptions options, transport::Region control)
    : link_(std::move(link)),
      rank_(link_->rank()),
      size_(link_->size()),
      options_(options),
      control_(std::move(control)),
      failure_(reinterpret_cast<Failure*>(control_.bytes.data())),
      seats_(reinterpret_cast<Seat*>(control_.bytes.data() + sizeof(Failure))),
      limit_(options.start_timeout) {
  static_assert(sizeof(Failure) % alignof(Seat) == 0);
}

Status Group::sync(const std::string& what) {
  TNT_RETURN_IF_ERROR(failure());
  meet();
  const uint32_t target = ++step_;
  publish(seat(rank()).step, target);
  for (int other = 0; other < size(); ++other) {
    TNT_RETURN_IF_ERROR(await(other, seat(other).step, target, [&what] { return what; }));
  }
  return {};
}

bool Group::spin(const Word& word, uint32_t target) const {
  const int spins = own_cores_ ? kSpins : 0;
  for (int i = 0; i < kEagerSpins + spins; ++i) {
    if (reached(word, target)) return true;
    if (i >= kEagerSpins) pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (reached(word, target)) return true;
    std::this_thread::yield();
  }
  return false;
}

Status Group::sleep_until(int other, Word& word, uint32_t target, const std::string& what) {
  Word& sleepers = seat(other).sleepers;
  Watch watch(*this, Wait::kCall, what);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  while (status.ok()) {
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - target) >= 0) break;
    link_->sleep(word, seen, kSlice);
    if (!reached(word, target)) status = watch.check(other);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

Result<std::vector<uint64_t>> Group::gather(uint64_t value, const std::string& what) {
  // two places taken in turn: a rank writes one again only after all have passed the sync in between
  const size_t place = (step_ + 1) % 2;
  seat(rank()).value[place].store(value, std::memory_order_relaxed);
  TNT_RETURN_IF_ERROR(sync(what));
  std::vector<uint64_t> values;
  for (int other = 0; other < size(); ++other) {
    values.push_back(seat(other).value[place].load(std::memory_order_relaxed));
  }
  return values;
}

Result<transport::Region> Group::map(size_t bytes, const std::string& what) {
  const uint64_t room = link_->room();
  auto rooms = gather(bytes <= room ? UINT64_MAX : room, what);
  if (!rooms.ok()) return rooms.status();
  const uint64_t least = *std::min_element(rooms.value().begin(), rooms.value().end());
  if (least != UINT64_MAX) {
    constexpr uint64_t kMiB = 1024 * 1024;
    return Status(Code::kOutOfMemory,
                  text("too little memory for ", what, " of ", size(), " ranks: ", bytes / kMiB + 1,
                       " MiB are needed and ", least / kMiB,
                       " MiB are left on this machine; use fewer ranks on it or a smaller model"));
  }
  auto region = link_->map(bytes);
  return region.ok() ? std::move(region) : Result<transport::Region>(fail(region.status()));
}

void Group::post(const std::string& name, uint32_t value) {
  Board& board = seat(rank()).board;
  board.post(hash_of(name), value, meetings_);
  link_->wake(board.count());
}

Result<uint32_t> Group::await_post(int from, const std::string& name) {
  TNT_RETURN_IF_ERROR(failure());
  if (awaited_meeting_ != meetings_) awaited_.clear();
  awaited_meeting_ = meetings_;
  const uint32_t nth = ++awaited_[name];
  const uint64_t key = hash_of(name);
  Seat& other = seat(from);
  Watch watch(*this, Wait::kCall, name);
  while (true) {
    const uint32_t seen = other.board.count().load(std::memory_order_seq_cst);
    // looked at first: what it posts comes before its next call, and before it leaves
    const bool went_on =
        reached(other.meetings, meetings_ + 1) || link_->presence(from) == transport::Presence::kLeft;
    const Board::Found found = other.board.find(key, meetings_, nth);
    if (found.value && !found.lost) return *found.value;
    if (found.lost) {
      return Status(
          Code::kMismatch,
          text("rank ", job_rank(rank()), " waits in ", name, ": rank ", job_rank(from),
               " has done too much alone since the ranks last met to tell whether this was done; let them "
               "meet now and then, as with a barrier"));
    }
    if (went_on) {
      return Status(
          Code::kMismatch,
          text("rank ", job_rank(rank()), " waits in ", name, ": rank ", job_rank(from),
               " goes on without it; call it on every rank, or on rank ", job_rank(from), " alone"));
    }
    link_->sleep(other.board.count(), seen, kSlice);
    TNT_RETURN_IF_ERROR(watch.check(from));
  }
}

Status Group::fail(const Status& status) {
  uint32_t none = 0;
  if (failure_->state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    failure_->code.store(static_cast<int32_t>(status.code()), std::memory_order_relaxed);
    const size_t length = std::min(status.message().size(), failure_->message.size() - 1);
    std::memcpy(failure_->message.data(), status.message().data(), length);
    failure_->state.store(2, std::memory_order_release);
    ring_others();
    ring_own();
    return status;
  }
  for (int i = 0; i < 1000 && failure_->state.load(std::memory_order_acquire) == 1; ++i) {
    std::this_thread::sleep_for(1ms);  // the writer may have died between its two stores
  }
  const Status first = failure();
  return first.ok() ? status : first;
}

Status Group::failure() const {
  if (failure_->state.load(std::memory_order_acquire) != 2) return {};
  return {static_cast<Code>(failure_->code.load(std::memory_order_relaxed)), failure_->message.data()};
}

void Group::beat() { seat(rank()).heartbeat.fetch_add(1, std::memory_order_relaxed); }

void Group::ring(int rank) {
  Seat& rung = seat(rank);
  rung.bell.fetch_add(1, std::memory_order_seq_cst);
  if (rung.bell_sleepers.load(std::memory_order_seq_cst) != 0) link_->wake(rung.bell);
}

void Group::ring_others() {
  for (int other = 0; other < size(); ++other) {
    if (other != rank()) ring(other);
  }
}

uint32_t Group::bell() const { return seat(rank()).bell.load(std::memory_order_seq_cst); }

void Group::sleep_until_rung(uint32_t seen, Duration at_most) {
  Seat& own = seat(rank());
  own.bell_sleepers.fetch_add(1, std::memory_order_seq_cst);
  link_->sleep(own.bell, seen, at_most);
  own.bell_sleepers.fetch_sub(1, std::memory_order_relaxed);
}

Watch::Watch(Group& group, Wait kind, std::string what)
    : group_(group), kind_(kind), what_(std::move(what)), next_warning_(since_ + group.options().warn_every) {
  group_.seat(group_.rank()).waiting[index_of(kind_)].fetch_add(1, std::memory_order_relaxed);
}

Watch::~Watch() {
  group_.seat(group_.rank()).waiting[index_of(kind_)].fetch_sub(1, std::memory_order_relaxed);
  group_.link().waits_for(group_.job_rank(group_.rank())).store(0, std::memory_order_relaxed);
}

bool Watch::waits_for_this_rank(int job_rank) const {
  constexpr int kMost = 4096;  // others change while this looks: it must end all the same
  const int own = group_.job_rank(group_.rank());
  for (int i = 0; i < kMost && job_rank >= 0 && job_rank != own; ++i)
    job_rank = static_cast<int>(group_.link().waits_for(job_rank).load(std::memory_order_relaxed)) - 1;
  return job_rank == own;
}

Status Watch::check(int rank) {
  TNT_RETURN_IF_ERROR(group_.failure());
  const auto now = Clock::now();
  Group::Seat& other = group_.seat(rank);
  const uint32_t heartbeat = other.heartbeat.load(std::memory_order_relaxed);
  if (rank != rank_ || heartbeat != heartbeat_) {
    if (rank != rank_) suspect_since_ = Clock::time_point::max();
    rank_ = rank;
    heartbeat_ = heartbeat;
    last_sign_ = now;
  }
  const int number = group_.job_rank(rank);
  const int own = group_.job_rank(group_.rank());
  switch (group_.link().presence(rank)) {
    case transport::Presence::kGone:
      return suspect(text("rank ", number, " has died"), Code::kPeerLost);
    case transport::Presence::kLeft:
      return suspect(text("rank ", number, " has ended; were there calls or batches that it did not have?"),
                     Code::kPeerLost);
    case transport::Presence::kHere:
      break;
  }
  const auto waits = [&](Wait kind) {
    return other.waiting[index_of(kind)].load(std::memory_order_relaxed) != 0;
  };
  const Wait elsewhere = kind_ == Wait::kCall ? Wait::kGradients : Wait::kCall;
  if (waits(elsewhere) && !waits(kind_)) {
    if (suspect_since_ == Clock::time_point::max()) {
      suspect_since_ = now;
      suspect_heartbeat_ = heartbeat;
    }
    // one that is stopped by a signal says what it did then: only a new sign of life confirms it
    if (heartbeat == suspect_heartbeat_) return {};
    return suspect(text("rank ", number, " waits for ", name_of(elsewhere),
                        " meanwhile; give every rank the same number of batches and the same calls"),
                   Code::kMismatch);
  }
  suspect_since_ = Clock::time_point::max();
  group_.link().waits_for(own).store(static_cast<uint32_t>(number) + 1, std::memory_order_relaxed);
  if (now - last_sign_ > group_.limit_) {
    return group_.fail(
        {Code::kTimeout, text("rank ", own, " waits in ", what_, ": rank ", number,
                              " is stopped or stuck, no sign of life for ",
                              static_cast<int>(in_seconds(now - last_sign_)), " s (limit: TNT_TIMEOUT)")});
  }
  if (waits(kind_) && kind_ == Wait::kGradients && now - since_ > group_.limit_) {
    return group_.fail({Code::kTimeout, text("rank ", own, " waits in ", what_, ": rank ", number,
                                             " has waited for other gradients for ",
                                             static_cast<int>(in_seconds(now - since_)),
                                             " s; apply the same optimizers in the same order on every rank "
                                             "(limit: TNT_TIMEOUT)")});
  }
  // not a proof, where a rank has several threads: so it must last
  circle_since_ = waits_for_this_rank(number) ? std::min(circle_since_, now) : Clock::time_point::max();
  if (circle_since_ != Clock::time_point::max() && now - circle_since_ > group_.limit_) {
    return group_.fail({Code::kMismatch,
                        text("rank ", own, " waits in ", what_, " for rank ", number,
                             ", which waits for it in another call: the ranks wait for one another; make the "
                             "calls of all groups in one order on every rank (limit: TNT_TIMEOUT)")});
  }
  if (now >= next_warning_) {
    next_warning_ += group_.options().warn_every;
    log_warning(text("rank ", own, " has waited ", static_cast<int>(in_seconds(now - since_)), " s in ",
                     what_, " for rank ", number, ", which lives and is busy elsewhere"));
  }
  return {};
}

Status Watch::suspect(const std::string& reason, Code code) {
  const auto now = Clock::now();
  suspect_since_ = std::min(suspect_since_, now);
  if (now - suspect_since_ < group_.options().grace) return {};
  return group_.fail(
      {code, text("rank ", group_.job_rank(group_.rank()), " waits in ", what_, ": ", reason)});
}

}  // namespace tarantella::collective
