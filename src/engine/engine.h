#pragma once
// The one progress thread of a rank: it drives every group that the rank is in, and shows the others that it runs.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collective/members.h"

namespace tarantella::engine {

/// Something that the progress thread drives.
class Driven {
 public:
  enum class Need {
    kNothing,  ///< until the rank's bell rings
    kLooks,    ///< waits for other ranks: to be looked at often
    kSpins,    ///< as kLooks, and nothing else runs on this rank's core
  };

  virtual ~Driven() = default;
  /// Does what is due. On the progress thread, once a second or more often; does not wait for other ranks.
  virtual Need advance() = 0;
};

/// Thread-safe.
class Engine {
 public:
  /// Starts the thread.
  explicit Engine(std::shared_ptr<collective::Members> members);
  /// Ends it. Not on the thread itself.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Blocks while an advance() runs, and so does remove(), after which `driven` is not used any more.
  void add(Driven& driven);
  void remove(Driven& driven);

 private:
  void run();
  Driven::Need advance_all();

  const std::shared_ptr<collective::Members> members_;
  std::mutex mutex_;
  std::vector<Driven*> driven_;  ///< guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tarantella::engine
