#pragma once
// Joins the group of a node to those of the other nodes. The leader of each node, its lowest rank, has a bridge: it
// owns the wire, tells the other leaders once a second that its node runs, and at once when the node's communication
// has failed; what it hears of theirs becomes a failure of its own node. So a failure on any node ends all waits.
//
// One thread at a time moves bytes: the rank's progress thread in advance(), or one that waits itself, in await() or
// with drive_alone(), as long as it is the only one that waits and something comes soon. So what is short wakes no
// other thread.

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collective/across/news.h"
#include "collective/across/nodes.h"
#include "collective/across/posts.h"
#include "collective/group.h"
#include "collective/looked_at.h"
#include "transport/wire.h"

namespace tarantella::collective::across {

/// The tags of messages between leaders.
enum class Stream : transport::Tag {
  kNews,                         ///< of the bridge
  kDetails,                      ///< a call in full, if calls differ
  kPart,                         ///< a node's values for the node that reduces them, or gives them to all
  kCall = transport::kForeseen,  ///< which call a node makes, with few bytes of it
  kResult,                       ///< a part that is complete
  kMore,                         ///< as kPart, of a call that all leaders are known to make
};
/// Tags from here on belong to plans.
constexpr transport::Tag kFirstTag = 16;

struct BridgeOptions {
  Duration news_every = 1s;
  /// A node that is silent for this long, while this one runs, is named in a WARNING. With the time until the next news
  /// and the next look that is within ten seconds.
  Duration missed = 8s;
  /// After this long it is lost.
  Duration silence = 300s;
  /// The same after expect_end().
  Duration short_silence = 2500ms;
  /// If this node does not look for so long, it was stopped, and the others may have been, too: silence counts anew.
  Duration stopped = 3s;
};

/// Thread-safe, except where a thread is named.
class Bridge {
 public:
  /// `posts` takes what other leaders post. `group` is that of this rank's node, in which it is rank 0; rank k of the
  /// wire is the leader of node k.
  Bridge(std::shared_ptr<Group> group, std::unique_ptr<transport::Wire> wire, Nodes nodes,
         std::shared_ptr<Posts> posts, BridgeOptions options);
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  const Nodes& nodes() const { return nodes_; }
  /// The number of this node.
  size_t node() const { return node_; }
  Group& group() { return *group_; }

  /// Moves bytes, speaks and listens, unless another thread does. The progress thread calls it at least every
  /// Group::kSlice. Returns how long that thread may sleep until the next call if bytes are awaited, the longer the
  /// longer no transfer has ended; else kForever. Does not wait for other nodes, except for two seconds in the call
  /// after leave().
  Duration advance();

  /// As in transport::Wire, to and from the leader of `node`.
  transport::Request send(size_t node, Stream stream, std::span<const std::byte> bytes,
                          std::shared_ptr<const void> owner);
  transport::Request receive(size_t node, Stream stream, std::span<std::byte> bytes,
                             std::shared_ptr<const void> owner);
  /// The same with tags from kFirstTag on.
  transport::Request send(size_t node, transport::Tag tag, std::span<const std::byte> bytes,
                          std::shared_ptr<const void> owner);
  transport::Request receive(size_t node, transport::Tag tag, std::span<std::byte> bytes,
                             std::shared_ptr<const void> owner);
  /// The call in which `node` has waited for this one for so long since the time `since` of now(), with nothing else
  /// under way, that it will exchange nothing else before, as far as its leader's caller is concerned; "" if there is
  /// none. For a rank whose caller waits since then for gradients of `node`.
  std::string stuck_call_of(size_t node, Duration since);
  /// The time that all looks for bytes have counted, with at most a second between two.
  Duration now() const { return now_.load(std::memory_order_relaxed); }
  /// Between the two, the other nodes are told that this rank's caller waits in `what` for `requests`, in which
  /// nullptr stands for none, and starts nothing else. They must stay valid.
  void show_wait(std::span<const transport::Request> requests, const std::string& what);
  void hide_wait();
  /// Between the two, the progress thread polls for bytes once it is awake. Calls may nest; end_waiting() once for
  /// each.
  void begin_waiting() { waiting_.fetch_add(1); }
  void end_waiting() { waiting_.fetch_sub(1); }
  /// As advance(), for another thread. Moves nothing, and returns false, unless the bytes of one begin_waiting() are
  /// all that is awaited. A thread that stops calling it rings if is_awaited(): the progress thread may have left the
  /// bytes of others to it.
  bool drive_alone();
  /// Whether begin_waiting() was called without its end.
  bool is_awaited() const { return waiting_.load() != 0; }
  /// Whether leave() was called: transfers end from here on.
  bool is_leaving() const { return leaving_.load(); }
  /// Whether `node` has told that it has left the job, or its connection has failed.
  bool has_left(size_t node) const { return peers_[node].left.load(); }
  /// Blocks until all of `requests` have ended well. Otherwise cancels them, fails the group and returns its first
  /// cause. `describe()` names the caller's operation in errors; it is called only if this thread leaves the bytes to
  /// another. Ends when a node is lost, has left or has failed; one that runs is awaited without limit.
  template <typename Describe>
  Status await(std::span<const transport::Request> requests, Describe describe) {
    if (drive_for(requests)) return {};
    return sleep_until_ended(requests, describe());
  }

  /// Tells the other leaders what this one has posted, and how many calls it has made. Do not block.
  void post(const Post& post);
  void count_call(uint32_t calls);

  /// From here on a silent node is lost sooner: something ends this job, perhaps since that node has died.
  void expect_end() { expects_end_.store(true); }

  /// Tells the other nodes that this one ends, and closes the wire. Blocks until the progress thread has done so, for
  /// about two seconds at most. Calls that wait end with the group's failure. Idempotent; not on the progress thread.
  void leave();

 private:
  static constexpr Duration kLook = 1s;  ///< the most that counts between two looks

  struct Peer {
    std::shared_ptr<News> said = std::make_shared<News>();
    std::shared_ptr<News> heard = std::make_shared<News>();
    transport::Request saying;
    transport::Request hearing;
    std::deque<Post> posts;  ///< not said yet; guarded by mutex_
    Duration said_at = -kForever;
    Duration heard_at{};  ///< in the time of now()
    size_t received = 0;  ///< messages of any kind
    uint32_t call = 0;    ///< as the last news said; with what follows guarded by mutex_
    std::string call_name;
    Duration call_since{}, call_heard_at{};  ///< in the time of now()
    bool knows_failure = false;
    bool knows_stacks = false;
    bool knows_leave = false;
    std::string host;
    bool joined = false;     ///< has said something
    bool is_missed = false;  ///< there was a WARNING since it was last heard
    std::atomic<bool> left{false};
  };

  /// Fails the group if another thread has been inside the wire for too long: MPI may not return from a send to a
  /// machine that is gone.
  void look_at_driver(bool is_this_thread);
  /// Moves bytes, speaks and listens, on the thread that holds driving_; looks for bytes up to so many times. Returns
  /// whether a transfer has ended.
  bool drive(int looks);
  /// Drives on this thread until all `requests` have ended, nothing has come for a while, or others wait, too. Returns
  /// whether all have ended well.
  bool drive_for(std::span<const transport::Request> requests);
  Status sleep_until_ended(std::span<const transport::Request> requests, const std::string& what);
  void hear(size_t node, Duration now);
  void say(size_t node, Duration now);
  /// The number of the call in await() if it waits for `node` and nothing else is under way, else 0.
  uint32_t waits_only_for(size_t node) const;
  void close_wire(Duration now);
  bool is_closed();
  void judge_silence(size_t node, Duration silent);
  /// The node's host and ranks, for messages.
  std::string named(size_t node) const;

  const std::shared_ptr<Group> group_;
  const Nodes nodes_;
  const size_t node_;
  const BridgeOptions options_;
  const std::shared_ptr<Posts> posts_;
  std::mutex driving_;       ///< taken before mutex_
  std::vector<Peer> peers_;  ///< by node; guarded by driving_, except where it says otherwise
  LookedAt looked_at_;       ///< guarded by driving_, as what follows
  Clock::time_point last_time_ = Clock::now();
  bool was_awaited_ = false;          ///< in the last drive()
  Duration moved_at_{};               ///< when a transfer has last ended, or the wait has begun, by now()
  LookedAt looked_at_driver_{kLook};  ///< used by the progress thread, as what follows
  Duration seen_drive_{};             ///< now() of the last drive() that it has found
  Duration driven_at_{};              ///< the last look that found that the wire is moved
  std::atomic<Duration> now_{Duration{}};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;  ///< guarded by mutex_
  uint32_t calls_ = 0;   ///< guarded by mutex_
  // the call that sleeps in await(); guarded by mutex_
  std::span<const transport::Request> awaited_;
  std::string awaited_name_;
  uint32_t awaited_number_ = 0;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> expects_end_{false};
  std::atomic<int> waiting_{0};            ///< begin_waiting() without its end
  std::unique_ptr<transport::Wire> wire_;  ///< moved by the thread that holds driving_
};

}  // namespace tarantella::collective::across
