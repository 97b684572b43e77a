#pragma once
// Included before the first line of each source under test. Inside namespace tarantella, these names hide those of
// ::std, so that std::thread, std::mutex and the clock run on fibers; all other names of ::std stay visible.

#include <chrono>
#include <compare>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "explorer/atomic.h"
#include "explorer/fibers.h"

namespace tarantella::std {

using namespace ::std;

/// Not recursive and not fair.
class mutex {
 public:
  using Where = ::explorer::Where;

  mutex() = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock(Where where = Where::current()) {
    ::explorer::point();
    while (locked_) ::explorer::wait(this, ::explorer::Time::max(), where);
    locked_ = true;
  }
  bool try_lock() {
    ::explorer::point();
    return !::std::exchange(locked_, true);
  }
  void unlock() {
    locked_ = false;
    ::explorer::notify(this, true);
  }

 private:
  bool locked_ = false;
};

class condition_variable {
 public:
  using Where = ::explorer::Where;

  void wait(unique_lock<mutex>& lock, Where where = Where::current()) {
    (void)wait_until_notified(lock, ::explorer::Time::max(), where);
  }
  template <typename Predicate, typename = invoke_result_t<Predicate>>
  void wait(unique_lock<mutex>& lock, Predicate done, Where where = Where::current()) {
    while (!done()) wait(lock, where);
  }
  template <typename Rep, typename Period>
  cv_status wait_for(unique_lock<mutex>& lock, ::std::chrono::duration<Rep, Period> at_most,
                     Where where = Where::current()) {
    return wait_until_notified(lock, at_most, where) ? cv_status::no_timeout : cv_status::timeout;
  }
  template <typename Rep, typename Period, typename Predicate, typename = invoke_result_t<Predicate>>
  bool wait_for(unique_lock<mutex>& lock, ::std::chrono::duration<Rep, Period> at_most, Predicate done,
                Where where = Where::current()) {
    const ::explorer::Time end = ::explorer::now() + at_most;
    while (!done()) {
      if (::explorer::now() >= end) return false;
      (void)wait_until_notified(lock, end - ::explorer::now(), where);
    }
    return true;
  }
  void notify_one() { notify(false); }
  void notify_all() { notify(true); }

 private:
  bool wait_until_notified(unique_lock<mutex>& lock, ::explorer::Time at_most, Where where) {
    lock.mutex()->unlock();  // no other fiber runs before the wait begins
    const bool notified = ::explorer::wait(this, at_most, where);
    lock.mutex()->lock(where);
    return notified;
  }
  void notify(bool all) {
    ::explorer::point();
    ::explorer::notify(this, all);
  }
};

struct once_flag {
  mutex calling;
  bool called = false;
};

template <typename F>
void call_once(once_flag& once, F body) {
  const lock_guard lock(once.calling);
  if (!once.called) body();
  once.called = true;
}

class thread {
 public:
  class id {
   public:
    id() = default;
    explicit id(int fiber) : fiber_(fiber) {}
    auto operator<=>(const id&) const = default;

   private:
    int fiber_ = 0;
  };

  thread() = default;
  template <typename F>
  explicit thread(F body, ::explorer::Where where = ::explorer::Where::current())
      : fiber_(::explorer::start(::explorer::name_of(where), ::std::move(body))) {
    ::explorer::point();
  }
  thread(thread&& other) noexcept : fiber_(::std::exchange(other.fiber_, 0)) {}
  thread& operator=(thread&& other) noexcept {
    ::std::swap(fiber_, other.fiber_);
    return *this;
  }

  bool joinable() const { return fiber_ != 0; }
  id get_id() const { return id(fiber_); }
  void join(::explorer::Where where = ::explorer::Where::current()) {
    ::explorer::join(::std::exchange(fiber_, 0), where);
  }
  void detach() { fiber_ = 0; }

 private:
  int fiber_ = 0;
};

namespace this_thread {

inline thread::id get_id() { return thread::id(::explorer::current()); }
inline void yield() { ::explorer::yield(); }
template <typename Rep, typename Period>
void sleep_for(::std::chrono::duration<Rep, Period> time) {
  ::explorer::sleep(time);
}

}  // namespace this_thread

namespace chrono {

using namespace ::std::chrono;

struct steady_clock {
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = ::std::chrono::time_point<steady_clock>;
  static constexpr bool is_steady = true;

  static time_point now() { return time_point(::explorer::now()); }
};

}  // namespace chrono

// An error at compile time: the code under test does not use them so far.
struct not_yet_on_fibers;
using jthread = not_yet_on_fibers;
using recursive_mutex = not_yet_on_fibers;
using shared_mutex = not_yet_on_fibers;
using timed_mutex = not_yet_on_fibers;
using atomic_flag = not_yet_on_fibers;
template <typename T>
using atomic_ref = not_yet_on_fibers;

}  // namespace tarantella::std
