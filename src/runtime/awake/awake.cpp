#include "runtime/awake/awake.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <system_error>

#include "base/pause.h"
#include "runtime/awake/rests.h"
#include "runtime/cpu_mask.h"

namespace tarantella::runtime {
namespace {

using Word = std::atomic<uint32_t>;
enum : uint32_t { kOff, kOn, kEnd };

constexpr Duration kPatience = 100ms;

/// Returns when `word` is not `seen`, when it is set, or after `at_most`; sometimes early.
void sleep_on(Word& word, uint32_t seen, Duration at_most) {
  const auto nanoseconds = std::chrono::nanoseconds(at_most).count();
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
}

void wake(Word& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

void set(Word& word, uint32_t value) {
  if (word.exchange(value) != value) wake(word);
}

Duration read(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void bind_to(int cpu) {
  CpuMask mask{};
  mask.add(static_cast<size_t>(cpu));
  (void)mask.bind();
}

}  // namespace

struct Awake::State {
  explicit State(size_t cpus) : ids(cpus), clocks(cpus) {}

  std::vector<Word> ids;          ///< of the threads, 0 until they run
  std::vector<clockid_t> clocks;  ///< their CPU time; complete before the first kOn
  Word wanted = kOff;             ///< by the user; the first thread reads it
  Word now = kOff;                ///< by the first thread, and by the user who ends it; the others read it
  Word ended = 0;                 ///< the number of threads that have

  /// Does not rely on the first thread, which may be without a CPU while the others have one.
  void stop(uint32_t wish) {
    set(wanted, wish);
    set(now, wish);
  }

  Duration own() const {
    Duration sum{};
    for (const clockid_t clock : clocks) sum += read(clock);
    return sum;
  }

  Used used_since_start() const {
    return {Clock::now().time_since_epoch(), read(CLOCK_PROCESS_CPUTIME_ID), own()};
  }

  /// The first thread: decides for all.
  void lead() {
    Rests rests(static_cast<int>(ids.size()));
    Duration until{};  // when the rest ends, by the clock of Used::wall
    for (uint32_t wish = wanted; wish != kEnd; wish = wanted) {
      if (wish == kOff) {
        set(now, kOff);
        sleep_on(wanted, kOff, kForever);
        continue;
      }
      const Used before = used_since_start();
      const bool resting = before.wall < until;
      set(now, resting ? kOff : kOn);
      if (resting) {
        sleep_on(wanted, kOn, until - before.wall);
      } else {
        pause_and_nap(wanted);
      }
      const Used after = used_since_start();
      if (wanted != kOn || after.wall < until) continue;
      const Used used{after.wall - before.wall, after.process - before.process, after.own - before.own};
      until = after.wall + (resting ? rests.after_rest(used) : rests.after_work(used));
    }
    set(now, kEnd);
  }

  void follow() {
    for (uint32_t seen = now; seen != kEnd; seen = now) {
      if (seen == kOff) sleep_on(now, kOff, kForever);
      while (now.load(std::memory_order_relaxed) == kOn) pause_and_nap(now);
    }
  }

  /// Returns after about kInterval, or when `word` is no longer kOn.
  static void pause_and_nap(Word& word) {
    const Deadline nap = Deadline::after(Rests::kInterval);
    while (word.load(std::memory_order_relaxed) == kOn && !nap.passed()) {
      for (int i = 0; i < 64; ++i) pause();
    }
    sleep_on(word, kOn, Rests::kNap);
  }
};

Awake::Awake(const std::vector<int>& cpus) : state_(std::make_shared<State>(cpus.size())) {}

Result<std::unique_ptr<Awake>> Awake::create(const std::vector<int>& cpus, SetPolicy set_policy) {
  std::unique_ptr<Awake> awake(new Awake(cpus));
  const auto& state = awake->state_;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all,
                    &before);  // the threads inherit it: a handler must not wait for an idle CPU
  try {
    for (size_t i = 0; i < cpus.size(); ++i) {
      awake->threads_.emplace_back([state, i, cpu = cpus[i]] {
        ::pthread_setname_np(::pthread_self(), "tnt-awake");
        bind_to(cpu);
        set(state->ids[i], static_cast<uint32_t>(::syscall(SYS_gettid)));
        if (i == 0) {
          state->lead();
        } else {
          state->follow();
        }
        state->ended.fetch_add(1);
        wake(state->ended);
      });
    }
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return Status::system("starting a thread", error.code().value());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (size_t i = 0; i < cpus.size(); ++i) {
    while (state->ids[i] == 0) sleep_on(state->ids[i], 0, kForever);
    const auto id = static_cast<pid_t>(state->ids[i]);
    const sched_param none{};
    const int error = set_policy(id, SCHED_IDLE, &none) != 0 ? errno : 0;
    if (::sched_getscheduler(id) != SCHED_IDLE) return Status::system("idle priority for a thread", error);
    ::pthread_getcpuclockid(awake->threads_[i].native_handle(), &state->clocks[i]);
  }
  return awake;
}

Awake::~Awake() {
  state_->stop(kEnd);
  const Deadline deadline = Deadline::after(kPatience);
  for (uint32_t ended = state_->ended; ended < threads_.size() && !deadline.passed(); ended = state_->ended) {
    sleep_on(state_->ended, ended, deadline.left());
  }
  const bool all = state_->ended == threads_.size();
  for (std::thread& thread : threads_) all ? thread.join() : thread.detach();
}

void Awake::on() { set(state_->wanted, kOn); }
void Awake::off() { state_->stop(kOff); }
Duration Awake::cpu_time() const { return state_->own(); }

}  // namespace tarantella::runtime
