#pragma once
// The ranks of a job as the collectives see them: who is there, how to wait for one another without ever waiting
// for the dead, and the one first cause when something fails.

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/board.h"
#include "collective/members.h"
#include "transport/memory.h"

namespace tarantella::collective {

using transport::Word;

struct GroupOptions {
  /// A rank that lives but has shown no sign of life (see Members) for so long is stopped or stuck: the job fails.
  Duration timeout = 300s;
  /// A rank that is dead, has left or waits for one that waits for it is given so long before the job fails:
  /// its launcher may be about to end us all with a better word.
  Duration grace = 3s;
  /// How often a long wait for a living rank is said.
  Duration warn_every = 60s;
};

/// Owned by a shared_ptr: plans keep it.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// How long a wait sleeps before the awaited rank is looked at.
  static constexpr Duration kSlice = 50ms;

  /// Collective. Takes the memory. Blocks until every rank has created its group (those that never come are
  /// found by the end of their processes or by options.timeout). Where it is the memory of some ranks of `parent`, a
  /// close or a failure of the parent, or a rank that leaves it, ends the waits of this one until stand_alone(), since
  /// no other thread can close it yet.
  static Result<std::shared_ptr<Group>> create(std::unique_ptr<transport::Memory> memory,
                                               GroupOptions options,
                                               std::thread::id caller = std::this_thread::get_id(),
                                               Group* parent = nullptr);
  /// Leaves the group, of which the other ranks are told.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// From here on it lives and fails without its parent. To be called before other threads know of it.
  void stand_alone() { parent_ = nullptr; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The number of `rank` in the whole job, by which messages call it.
  int job_rank(int rank) const { return memory_->job_rank(rank); }
  transport::Memory& memory() { return *memory_; }
  Members& members() { return *members_; }
  std::shared_ptr<Members> share_members() { return members_; }
  const GroupOptions& options() const { return options_; }
  /// How long a wait may last without a sign of life.
  Duration limit() const { return options_.timeout; }

  /// The thread that makes this rank's calls, as far as is known: where it waits, nothing else is to be expected of
  /// the rank. Other threads may make calls, too.
  std::thread::id caller() const { return caller_; }
  bool is_caller() const { return std::this_thread::get_id() == caller_; }

  /// Collective, one thread at a time. Posts that this rank is here and waits until all ranks are. What a rank
  /// wrote to shared memory before is visible to all after. `what` names the caller's operation in errors.
  Status barrier(const std::string& what);

  /// Collective, one thread at a time: barrier() that carries one number a rank.
  Result<std::vector<uint64_t>> gather(uint64_t value, const std::string& what);

  /// Collective, one thread at a time: kOutOfMemory on all ranks if one has too little for `bytes`.
  Status check_room(size_t bytes, const std::string& what);

  /// Collective, one thread at a time: zeroed memory that all ranks see, or kOutOfMemory on all of them.
  Result<transport::Region> map(size_t bytes, const std::string& what);

  /// Counts one more collective call, for await_post(); part of every one.
  void count_call() { seat(rank()).meetings.store(++meetings_, std::memory_order_release); }

  /// Sets `word`, in memory that all ranks see, which only this rank sets: ever further, by wrapping around. What it
  /// wrote before is visible to whoever await()s it. Thread-safe, does not block.
  void signal(Word& word, uint32_t value) {
    word.store(value, std::memory_order_seq_cst);
    Word& sleepers = seat(rank()).sleepers;
    if (sleepers.load(std::memory_order_seq_cst) != 0) memory_->wake(word);
  }

  /// Waits until `word`, signalled by `rank`, is at `target` or further. `describe()` names the caller's operation
  /// in errors; it is called only if the wait is not a short one.
  template <typename Describe>
  Status await(int rank, Word& word, uint32_t target, Describe describe) {
    if (spin(word, target)) return {};
    return sleep_until(rank, word, target, describe());
  }
  /// Not collective, does not block. Says that this rank has done what `name` names, and how it ended.
  void post(const std::string& name, uint32_t value);

  /// One-sided: blocks until `from` has posted `name` since this rank's last collective call, as often as this
  /// rank has waited for it since then; what it posted earlier does not count. Returns what it posted.
  /// kMismatch, which fails nobody else, where `from` leaves or goes on to a later collective call instead. One
  /// thread at a time with the collective calls.
  Result<uint32_t> await_post(int from, const std::string& name);

  /// Ends the job's communication with `status` unless it has failed before; returns the first cause.
  /// Thread-safe, does not block; every wait of every rank returns that status within its next slice.
  Status fail(const Status& status);
  /// The first cause, or ok; of this rank alone once it is closed. Thread-safe, cheap.
  Status failure() const;
  /// What has become of `rank` in this group, found without its help. Thread-safe.
  Presence presence(int rank) const;
  /// Ends the communication of this rank and of no other: its waits return kPeerLost within their next slice.
  /// Thread-safe, does not block.
  void close();

  /// Blocks until another rank asks where this one's program is: until there are other questions than `seen`, which
  /// gets their number. One thread of a job's rank, which then tells it. Errors: kPeerLost once this is closed.
  Status await_question(uint32_t& seen);
  void tell_place(const std::string& place);

  /// See Members.
  uint32_t heartbeat(int rank) const { return members_->heartbeat(job_rank(rank)); }
  void ring(int rank) { members_->ring(job_rank(rank)); }
  void ring_all();

  /// True when spinning takes no time from another rank (settled at creation).
  bool own_cores() const { return own_cores_; }

 private:
  struct alignas(64) Seat {
    Word meetings;
    Word step;
    Word sleepers;  ///< on any word that this rank signals
    Word left;      ///< 1: this rank has left the group
    std::array<std::atomic<uint64_t>, 2> value;
    alignas(64) Board board;
    int32_t code;  ///< with the message: what this rank found, read only where failed_by names it
    std::array<char, 1020> message;
  };
  struct alignas(64) Head {
    Word failed_by;  ///< the rank whose seat holds the first cause, and 1; 0: none
  };

  Group(std::shared_ptr<transport::Memory> memory, std::shared_ptr<Members> members, GroupOptions options,
        std::thread::id caller, Group* parent, transport::Region control);
  bool has_left(int rank) const { return seat(rank).left.load(std::memory_order_acquire) != 0; }
  Seat& seat(int rank) const { return seats_[rank]; }
  bool spin(const Word& word, uint32_t target) const;
  Status sleep_until(int rank, Word& word, uint32_t target, const std::string& what);

  const std::shared_ptr<transport::Memory> memory_;
  const std::shared_ptr<Members> members_;  ///< of the whole job
  const int rank_;
  const int size_;
  const GroupOptions options_;
  const std::thread::id caller_;
  Group* parent_;  ///< nullptr once it stands alone
  const transport::Region control_;
  Word& failed_by_;
  Seat* const seats_;
  std::mutex failing_;  ///< of the threads of this rank that fail()
  std::atomic<bool> closed_{false};
  std::atomic<bool> listens_{false};  ///< a thread is in await_question()
  uint32_t step_ = 0;
  uint32_t meetings_ = 0;
  uint32_t awaited_meeting_ = 0;
  std::map<std::string, uint32_t> awaited_;  ///< how often each name was waited for since awaited_meeting_
  bool own_cores_ = false;
};

}  // namespace tarantella::collective
