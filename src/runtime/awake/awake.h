#pragma once
// Threads that keep cores from going idle: work that follows a short idle time was seen to take much longer.

#include <sched.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tarantella::runtime {

/// One thread of idle priority on each of some CPUs, which executes pauses while on. They rest while another process
/// works there, and in waits of this process that are longer than tens of milliseconds (rests.h).
/// Thread-safe. Takes no lock that an idle thread may hold, because that may not run for a second.
class Awake {
 public:
  using SetPolicy = int (*)(pid_t thread, int policy, const sched_param* parameters);

  /// Starts the threads, off. Errors: kSystem if a thread cannot be started, or does not get idle priority.
  static Result<std::unique_ptr<Awake>> create(const std::vector<int>& cpus,
                                               SetPolicy set_policy = ::sched_setscheduler);
  /// Ends the threads, at once as a rule. After a tenth of a second it leaves those behind that do not get a CPU, since
  /// threads of this process keep it busy: they end when they run next, and use nothing but their own memory. Not in a
  /// forked child.
  ~Awake();
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;

  void on();
  void off();
  /// CPU time that the threads have used.
  Duration cpu_time() const;

 private:
  struct State;

  explicit Awake(const std::vector<int>& cpus);

  const std::shared_ptr<State> state_;  ///< the threads' too, which may outlive this
  std::vector<std::thread> threads_;
};

}  // namespace tarantella::runtime
