#pragma once
// The one progress thread of a rank. It drives all groups of the rank, and shows the other ranks that this one runs.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collective/members.h"

namespace tarantella::engine {

/// Something that the progress thread drives.
class Driven {
 public:
  /// Between two calls of advance(), without any the thread sleeps until the rank's bell rings.
  struct Need {
    bool looks = false;  ///< short sleeps: it waits for other ranks
    bool spins = false;  ///< the thread may spin: nothing else runs on this rank's core
    /// It awaits bytes that ring no bell: does not sleep at first, and then no longer than this. kForever: none.
    Duration pause = kForever;
  };

  virtual ~Driven() = default;
  /// Does what is due and returns what it needs next. The progress thread calls it at least once a second. Must not
  /// wait for other ranks.
  virtual Need advance() = 0;
};

/// Thread-safe.
class Engine {
 public:
  /// Starts the thread.
  explicit Engine(std::shared_ptr<collective::Members> members);
  /// Ends the thread and joins it. Must not run on the thread itself.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Lets the thread drive `driven`, which must exist until remove() returns.
  void add(Driven& driven);
  /// Ends that. Blocks while the thread is in the advance() of `driven`, unless called on the thread itself: there,
  /// `driven` must exist until its advance() returns.
  void remove(Driven& driven);

 private:
  void run();
  Driven::Need advance_all();

  const std::shared_ptr<collective::Members> members_;
  std::mutex mutex_;
  std::condition_variable advanced_;
  std::vector<Driven*> driven_;  ///< guarded by mutex_
  Driven* advancing_ = nullptr;  ///< guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tarantella::engine
