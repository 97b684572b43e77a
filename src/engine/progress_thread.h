#pragma once
// The one progress thread of a rank. It makes progress for all groups of the rank, and shows the other ranks that this
// one runs.

#include <memory>
#include <thread>

#include "base/clock.h"
#include "collective/rank_table.h"

namespace tarantella::engine {

/// Something that the progress thread advances.
class Progressable {
 public:
  /// What the thread may do until the next advance(). If nothing is set, it sleeps until another thread wakes it.
  struct PollHint {
    /// advance() is to be called again within WaitPolicy::kCheckInterval, since this waits for other ranks and checks
    /// whether they may still come; else within WaitPolicy::kHeartbeat.
    bool within_check_interval = false;
    bool spins = false;  ///< the thread may spin: nothing else runs on this rank's core
    /// While bytes of other nodes are awaited, whose arrival wakes no thread: the longest sleep between two polls.
    /// Before its first sleep the thread polls for a while. kForever: no bytes are awaited.
    Duration max_poll_interval = kForever;
  };

  virtual ~Progressable() = default;
  /// Does what is due and returns what it needs next. The progress thread calls it at least once a second. Must not
  /// wait for other ranks.
  virtual PollHint advance() = 0;
};

/// Thread-safe.
class ProgressThread {
 public:
  /// How long remove() waits for an advance() of something shared.
  static constexpr Duration kRemove = 1s;

  /// Starts the thread.
  explicit ProgressThread(std::shared_ptr<collective::RankTable> rank_table);
  /// Ends the thread and joins it. A thread that remove() has left behind is detached instead: it uses nothing but its
  /// own memory and what it shares, and ends when that advance() returns. Must not run on the thread itself.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Registers `added`, which must exist until remove() returns.
  void add(Progressable& added);
  /// The same, for what may block inside a library without limit: the thread shares it.
  void add(std::shared_ptr<Progressable> added);
  /// Ends that. Blocks while the thread is in the advance() of `removed`, for at most kRemove if it is shared. Called
  /// on the thread itself it does not block: there, `removed` must exist until its advance() returns.
  void remove(const Progressable& removed);

 private:
  struct State;

  const std::shared_ptr<State> state_;  ///< the thread's too, which may outlive this
  std::thread thread_;
};

}  // namespace tarantella::engine
