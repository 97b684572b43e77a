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
#include "base/wait_policy.h"
#include "collective/flag_groups.h"
#include "collective/notification_board.h"
#include "collective/rank_table.h"
#include "collective/source_location.h"
#include "transport/node_memory.h"

namespace tarantella::collective {

using transport::Word;

struct GroupOptions {
  /// A rank whose process runs but has shown no sign of life (see RankTable) for this long is stopped or stuck: the job
  /// fails.
  Duration stuck_timeout = 300s;
  /// How long the job goes on if an awaited rank has died or left, or if ranks wait for one another. The launcher may
  /// meanwhile end all ranks with a better message.
  Duration failure_delay = 3s;
  /// How long a wait may last for a rank that is alive; see check_stall_timeout().
  Duration stall = kForever;
  /// How often a warning is logged in a long wait for a rank that is alive.
  Duration warn_every = 60s;
  /// In a group of up to this many ranks, each rank polls all others in a round. Larger groups use FlagGroups. The same
  /// on all ranks. Up to this number, the cache lines of all ranks arrive together and take little longer than one
  /// line, while flag groups take a second round trip.
  int one_level = 8;
};

/// Thread-safe, except for the collective calls: one thread at a time makes them. Owned by shared_ptr, since plans keep
/// it.
class NodeGroup : public std::enable_shared_from_this<NodeGroup> {
 public:
  /// How long a wait sleeps before it checks the awaited rank.
  static constexpr Duration kCheckInterval = WaitPolicy::kCheckInterval;

  /// Collective. Takes ownership of the memory. Blocks until every rank has created its group; a rank that never does
  /// is noticed by the end of its process or by options.stuck_timeout. `parent` is the group whose memory made this
  /// one, if any. Until stand_alone(), waits of this group also end if the parent is closed or fails, or if a rank
  /// leaves it, since no other thread can close this group yet. A rank that cannot map its memory fails the parent.
  static Result<std::shared_ptr<NodeGroup>> create(
      std::unique_ptr<transport::NodeMemory> memory, GroupOptions options,
      std::thread::id creator_thread = std::this_thread::get_id(), NodeGroup* parent = nullptr);
  /// Leaves the group; the other ranks can see that.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;
  /// Makes the group independent of its parent. Call it before other threads use the group.
  void stand_alone() { parent_ = nullptr; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The number of `rank` in the whole job, which messages use.
  int job_rank(int rank) const { return memory_->job_rank(rank); }
  transport::NodeMemory& memory() { return *memory_; }
  RankTable& rank_table() { return *rank_table_; }
  std::shared_ptr<RankTable> share_rank_table() { return rank_table_; }
  const GroupOptions& options() const { return options_; }
  /// How long a wait may last without a sign of life.
  Duration stuck_timeout() const { return options_.stuck_timeout; }

  /// The thread that created the group of the job, which need not be the process's main thread. It usually makes this
  /// rank's calls: while it waits, the rank is assumed to do nothing else. Other threads may make calls, too.
  std::thread::id creator_thread() const { return creator_thread_; }
  bool is_creator_thread() const {
    return counts_as_creator_thread || std::this_thread::get_id() == creator_thread_;
  }
  /// From here on is_creator_thread() is true on the calling thread: the detection of deadlocks then treats its waits
  /// as those of the creator thread. For a worker that makes the calls which the creator thread has handed over to it.
  static void count_as_creator_thread() { counts_as_creator_thread = true; }

  /// Collective, one thread at a time. Blocks until all ranks have called it. What any rank wrote to shared memory
  /// before its call is visible to all ranks after theirs. `what` names the caller's operation in errors.
  Status barrier(const std::string& what);

  /// Collective, one thread at a time. A barrier() that also returns the `value` of every rank, in rank order.
  Result<std::vector<uint64_t>> allgather(uint64_t value, const std::string& what);

  /// Collective, one thread at a time. Memory that all ranks see, zeroed at first, or kOutOfMemory on all ranks.
  Result<transport::Region> map(size_t bytes, const std::string& what);

  /// Counts a round of StagingBuffers or a barrier, for wait_notification(). All ranks of the group count alike.
  void count_round() { board_.set_sequence(static_cast<size_t>(rank_), ++rounds_); }

  /// Sets `word`, which lies in memory that all ranks see and which only this rank sets, to a later value (values wrap
  /// around), and wakes the ranks that await() it. What this rank wrote before is visible to them. Thread-safe, does
  /// not block.
  void publish(Word& word, uint32_t value) {
    word.store(value, std::memory_order_seq_cst);
    Word& sleepers = slot(rank()).sleepers;
    if (sleepers.load(std::memory_order_seq_cst) != 0) memory_->wake(word);
  }

  /// Waits until `word` has reached `target`, for about as long as falling asleep and waking up takes. True if it
  /// has.
  bool spin(const Word& word, uint32_t target) const;

  /// Blocks until `word`, published by `rank`, has reached `target`. `describe()` names the caller's operation in
  /// errors; it is called only if the wait is long.
  template <typename Describe>
  Status await(int rank, Word& word, uint32_t target, Describe describe) {
    if (spin(word, target)) return {};
    return sleep_until(rank, word, target, describe());
  }
  /// Not collective, does not block. Announces that this rank has done `name`, with the result `value`.
  void notify(const std::string& name, uint32_t value);

  /// One-sided: the n-th wait for `name` since this rank's last collective call blocks until `from` has notified of
  /// `name` n times since that call. Earlier notifications do not count. Returns the value of that notification.
  /// kMismatch, on this rank only, if `from` leaves or makes a later collective call without notifying. Not while
  /// another thread makes a collective call.
  Result<uint32_t> wait_notification(int from, const std::string& name);

  /// Not collective, does not block. The value of the last notification of `from` for `name`, among its newest ones;
  /// none if there is none. The failure of the communication, if it has failed.
  Result<std::optional<uint32_t>> find_notification(int from, const std::string& name) const;

  /// Ends the communication of all ranks with `status`, unless it has failed before. Returns the first cause, which
  /// every wait of every rank returns within kCheckInterval. Thread-safe, does not block. `exit_code`: that with which
  /// the rank that has failed will end; 0: unknown.
  Status fail(const Status& status, int exit_code = 0);
  /// fail() for an error that only this rank has met in `what`.
  Status fail_in(const std::string& what, const Status& error);
  /// Added to options.stall where the awaited rank is on another node, and where it is itself waiting: so the rank
  /// that is closest to the cause reports first.
  static constexpr Duration kStallDelayIfRemote = 2s, kStallDelayIfPeerWaits = 4s;
  /// Whether a wait that has lasted for `waited`, longer than options.stall + `delay`, is to end with fail_stalled().
  /// Past that limit it first asks all ranks to dump their stacks, and returns true after the time that these need.
  /// Thread-safe, does not block.
  bool check_stall_timeout(Duration waited, Duration delay);
  /// `place`: what waits in what; `ranks` are those that did not come.
  Status fail_stalled(const std::string& place, const std::string& ranks, Duration waited);

  /// The first cause, or ok. After close(), the failure of this rank alone. Thread-safe, cheap.
  Status failure() const;
  /// The first cause alone.
  Status first_cause() const;
  /// The exit code that belongs to it; 0 if it is unknown, or if there is none.
  int exit_code() const;
  /// Whether `rank` is present, has left or has died; needs no help of that rank. Thread-safe.
  RankState state_of(int rank) const;
  /// Ends the communication of this rank only: its waits return kPeerLost within kCheckInterval. Thread-safe, does not
  /// block.
  void close();

  /// See SourceLocationListener.
  Status await_location_query(uint32_t& seen) { return listener_.await(seen); }
  void report_location(const std::string& place) { listener_.answer(place); }

  /// See RankTable.
  uint32_t heartbeat(int rank) const { return rank_table_->heartbeat(job_rank(rank)); }
  void wake_progress_thread(int rank) { rank_table_->wake_progress_thread(job_rank(rank)); }
  /// Wakes the progress threads of the ranks for which `which(rank)` is true, with one wake-up for all that sleep.
  template <typename Which>
  void wake_progress_threads_if(Which which) {
    uint32_t asleep = 0;
    for (int each = 0; each < size(); ++each) {
      if (which(each)) asleep |= rank_table_->increment_wake_count(job_rank(each));
    }
    rank_table_->wake_sleepers(asleep);
  }

  /// True if spinning takes no time from another rank. Does not change after creation.
  bool dedicated_cores() const { return dedicated_cores_; }
  /// The flag groups in which the ranks exchange flags: one or several. Does not change after creation.
  const FlagGroups& flag_groups() const { return flag_groups_; }

 private:
  struct alignas(64) RankSlot {
    Word barriers;                                ///< how many this rank has come to; wraps around
    Word sleepers;                                ///< how many ranks sleep on words that this rank publishes
    std::array<std::atomic<uint64_t>, 2> values;  ///< of allgather(), used in turn
    /// With what follows: the failure that this rank found; valid if failed_by names this rank.
    alignas(64) int32_t code;
    int32_t exit_code;
    std::array<char, 1016> message;
  };
  struct alignas(64) Head {
    Word failed_by;  ///< 1 + the rank whose slot holds the first cause; 0: none
  };

  NodeGroup(std::shared_ptr<transport::NodeMemory> memory, std::shared_ptr<RankTable> rank_table,
            GroupOptions options, std::thread::id creator_thread, NodeGroup* parent,
            transport::Region control);
  /// Collective. kOutOfMemory on all ranks if one has too little memory for `bytes`.
  Status check_memory(size_t bytes, const std::string& what);
  bool has_departed(int rank) const;
  /// `by` is a value of failed_by_ other than 0.
  Status cause_of(uint32_t by) const;
  RankSlot& slot(int rank) const { return slots_[rank]; }
  Status sleep_until(int rank, Word& word, uint32_t target, const std::string& what);

  const std::shared_ptr<transport::NodeMemory> memory_;
  const std::shared_ptr<RankTable> rank_table_;  ///< of the whole job
  const int rank_;
  const int size_;
  const GroupOptions options_;
  static inline thread_local bool counts_as_creator_thread = false;
  const std::thread::id creator_thread_;
  NodeGroup* parent_;  ///< nullptr after stand_alone()
  const transport::Region control_;
  Word& failed_by_;
  RankSlot* const slots_;
  std::mutex failing_;  ///< held by fail()
  std::atomic<bool> closed_{false};
  SourceLocationListener listener_;
  uint32_t barriers_ = 0;
  uint32_t rounds_ = 0;      ///< see count_round()
  NotificationBoard board_;  ///< of this group, by rank
  bool dedicated_cores_ = false;
  FlagGroups flag_groups_;
};

}  // namespace tarantella::collective
