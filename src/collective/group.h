#pragma once
// A group of ranks as the collectives see it: which ranks are present, waits that end when the awaited rank has died,
// and one first cause for all ranks when something fails.

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/blocks.h"
#include "collective/board.h"
#include "collective/members.h"
#include "collective/post_waits.h"
#include "transport/memory.h"

namespace tarantella::collective {

using transport::Word;

struct GroupOptions {
  /// A rank whose process runs but has shown no sign of life (see Members) for this long is stopped or stuck: the job
  /// fails.
  Duration timeout = 300s;
  /// How long the job goes on if an awaited rank has died or left, or if ranks wait for one another. The launcher may
  /// meanwhile end all ranks with a better message.
  Duration grace = 3s;
  /// How long a wait may last for a rank that is alive; see stalls().
  Duration stall = kForever;
  /// How often a warning is logged in a long wait for a rank that is alive.
  Duration warn_every = 60s;
  /// Up to so many ranks, each looks at all others when they meet; more meet in Blocks. The same on all ranks. So few
  /// cache lines arrive together and take little longer than one, while blocks take a second round trip.
  int one_level = 8;
};

/// Thread-safe, except for the collective calls: one thread at a time makes them. Owned by shared_ptr, since plans keep
/// it.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// How long a wait sleeps before it checks the awaited rank.
  static constexpr Duration kSlice = 50ms;

  /// Collective. Takes ownership of the memory. Blocks until every rank has created its group; a rank that never does
  /// is noticed by the end of its process or by options.timeout. `parent` is the group whose memory made this one, if
  /// any. Until stand_alone(), waits of this group also end if the parent is closed or fails, or if a rank leaves it,
  /// since no other thread can close this group yet. A rank that cannot map its memory fails the
  /// parent.
  static Result<std::shared_ptr<Group>> create(std::unique_ptr<transport::Memory> memory,
                                               GroupOptions options,
                                               std::thread::id caller = std::this_thread::get_id(),
                                               Group* parent = nullptr);
  /// Leaves the group; the other ranks can see that.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// Makes the group independent of its parent. Call it before other threads use the group.
  void stand_alone() { parent_ = nullptr; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The number of `rank` in the whole job, which messages use.
  int job_rank(int rank) const { return memory_->job_rank(rank); }
  transport::Memory& memory() { return *memory_; }
  Members& members() { return *members_; }
  std::shared_ptr<Members> share_members() { return members_; }
  const GroupOptions& options() const { return options_; }
  /// How long a wait may last without a sign of life.
  Duration limit() const { return options_.timeout; }

  /// The thread that usually makes this rank's calls. While it waits, the rank is assumed to do nothing else. Other
  /// threads may make calls, too.
  std::thread::id caller() const { return caller_; }
  bool is_caller() const { return acts_for_callers || std::this_thread::get_id() == caller_; }
  /// From here on this thread makes calls that callers have begun and do not wait for.
  static void act_for_callers() { acts_for_callers = true; }

  /// Collective, one thread at a time. Blocks until all ranks have called it. What any rank wrote to shared memory
  /// before its call is visible to all ranks after theirs. `what` names the caller's operation in errors.
  Status barrier(const std::string& what);

  /// Collective, one thread at a time. A barrier() that also returns the `value` of every rank, in rank order.
  Result<std::vector<uint64_t>> gather(uint64_t value, const std::string& what);

  /// Collective, one thread at a time. kOutOfMemory on all ranks if one has too little memory for `bytes`.
  Status check_room(size_t bytes, const std::string& what);

  /// Collective, one thread at a time. Memory that all ranks see, zeroed at first, or kOutOfMemory on all ranks.
  Result<transport::Region> map(size_t bytes, const std::string& what);

  /// Counts a collective call, for await_post(). Every collective does this once.
  void count_call() { seat(rank()).meetings.store(++meetings_, std::memory_order_release); }

  /// Sets `word`, which lies in memory that all ranks see and which only this rank sets, to a later value (values wrap
  /// around), and wakes the ranks that await() it. What this rank wrote before is visible to them. Thread-safe, does
  /// not block.
  void signal(Word& word, uint32_t value) {
    word.store(value, std::memory_order_seq_cst);
    Word& sleepers = seat(rank()).sleepers;
    if (sleepers.load(std::memory_order_seq_cst) != 0) memory_->wake(word);
  }

  /// Waits until `word` has reached `target`, for about as long as falling asleep and waking up takes. True if it has.
  bool spin(const Word& word, uint32_t target) const;

  /// Blocks until `word`, signalled by `rank`, has reached `target`. `describe()` names the caller's operation in
  /// errors; it is called only if the wait is long.
  template <typename Describe>
  Status await(int rank, Word& word, uint32_t target, Describe describe) {
    if (spin(word, target)) return {};
    return sleep_until(rank, word, target, describe());
  }
  /// Not collective, does not block. Announces that this rank has done `name`, with the result `value`.
  void post(const std::string& name, uint32_t value);

  /// One-sided: blocks until `from` has posted `name` since this rank's last collective call, as often as this rank has
  /// waited for `name` since then. Earlier posts do not count. Returns the posted value. kMismatch, on this rank only,
  /// if `from` leaves or makes a later collective call without posting. Not while another thread makes a collective
  /// call.
  Result<uint32_t> await_post(int from, const std::string& name);

  /// Not collective, does not block. What `from` has posted last for `name`, among its newest posts; none if it has
  /// not. The failure of the communication, if it has failed.
  Result<std::optional<uint32_t>> find_post(int from, const std::string& name) const;

  /// Ends the communication of all ranks with `status`, unless it has failed before. Returns the first cause, which
  /// every wait of every rank returns within kSlice. Thread-safe, does not block. `exit_code`: that with which the rank
  /// that has failed will end; 0: unknown.
  Status fail(const Status& status, int exit_code = 0);
  /// fail() for an error that only this rank has met in `what`.
  Status fail_in(const std::string& what, const Status& error);
  /// How much later a wait ends the job for another node, and for a rank that itself waits: others know more then.
  static constexpr Duration kStallsFar = 2s, kStallsBehind = 4s;
  /// Whether a wait that has lasted for `waited` is to end with fail_stalled(). Before, all ranks are asked where they
  /// are. `later` is added to options.stall. Thread-safe, does not block.
  bool stalls(Duration waited, Duration later);
  /// `place`: what waits in what; `ranks` are those that did not come.
  Status fail_stalled(const std::string& place, const std::string& ranks, Duration waited);

  /// The first cause, or ok. After close(), the failure of this rank alone. Thread-safe, cheap.
  Status failure() const;
  /// The first cause alone.
  Status first_cause() const;
  /// The exit code that belongs to it; 0 if it is unknown, or if there is none.
  int exit_code() const;
  /// Whether `rank` is present, has left or has died; needs no help of that rank. Thread-safe.
  Presence presence(int rank) const;
  /// Ends the communication of this rank only: its waits return kPeerLost within kSlice. Thread-safe, does not block.
  void close();

  /// Blocks until another rank asks where this rank's program is, that is until the number of questions differs from
  /// `seen`, which is set to that number. For one thread of a rank, which then calls tell_place(). Errors: kPeerLost
  /// after close().
  Status await_question(uint32_t& seen);
  /// Answers the questions: `place` is a position in the program, such as "train.py:12".
  void tell_place(const std::string& place);

  /// See Members.
  uint32_t heartbeat(int rank) const { return members_->heartbeat(job_rank(rank)); }
  void ring(int rank) { members_->ring(job_rank(rank)); }
  /// Rings the bells of the ranks for which `which(rank)` is true, with one wake-up for all that sleep.
  template <typename Which>
  void ring_if(Which which) {
    uint32_t asleep = 0;
    for (int each = 0; each < size(); ++each) {
      if (which(each)) asleep |= members_->change_bell(job_rank(each));
    }
    members_->wake_rung(asleep);
  }

  /// True if spinning takes no time from another rank. Does not change after creation.
  bool own_cores() const { return own_cores_; }
  /// How the ranks meet: in one block or in several. Does not change after creation.
  const Blocks& blocks() const { return blocks_; }

 private:
  struct alignas(64) Seat {
    Word meetings;
    Word step;
    Word sleepers;  ///< how many ranks sleep on words that this rank signals
    Word left;      ///< 1: this rank has left the group
    std::array<std::atomic<uint64_t>, 2> value;
    alignas(64) Board board;
    int32_t
        code;  ///< with what follows: the failure that this rank found; valid if failed_by names this rank
    int32_t exit_code;
    std::array<char, 1016> message;
  };
  struct alignas(64) Head {
    Word failed_by;  ///< 1 + the rank whose seat holds the first cause; 0: none
  };

  Group(std::shared_ptr<transport::Memory> memory, std::shared_ptr<Members> members, GroupOptions options,
        std::thread::id caller, Group* parent, transport::Region control);
  bool has_left(int rank) const;
  /// `by` is a value of failed_by_ other than 0.
  Status cause_of(uint32_t by) const;
  Seat& seat(int rank) const { return seats_[rank]; }
  Status sleep_until(int rank, Word& word, uint32_t target, const std::string& what);

  const std::shared_ptr<transport::Memory> memory_;
  const std::shared_ptr<Members> members_;  ///< of the whole job
  const int rank_;
  const int size_;
  const GroupOptions options_;
  static inline thread_local bool acts_for_callers = false;
  const std::thread::id caller_;
  Group* parent_;  ///< nullptr after stand_alone()
  const transport::Region control_;
  Word& failed_by_;
  Seat* const seats_;
  std::mutex failing_;  ///< held by fail()
  std::atomic<bool> closed_{false};
  std::atomic<bool> listens_{false};  ///< a thread is in await_question()
  uint32_t step_ = 0;
  uint32_t meetings_ = 0;
  PostWaits post_waits_;
  bool own_cores_ = false;
  Blocks blocks_;
};

}  // namespace tarantella::collective
