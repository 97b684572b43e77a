#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/pause.h"
#include "runtime/awake/awake.h"
#include "runtime/awake/rests.h"
#include "runtime/cpu_mask.h"

namespace tarantella::runtime {
namespace {

constexpr Duration kLook = Rests::kInterval;

TEST(Rests, AreNotTakenWhileThisProcessWorksOrWaitsBriefly) {
  Rests rests(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(rests.after_work({kLook, kLook, 0ms}), 0ms);
    for (int j = 0; j < 4; ++j) EXPECT_EQ(rests.after_work({kLook, kLook, kLook}), 0ms);
  }
}

TEST(Rests, GrowBesideABusyStrangerUntilHeKeepsHisCore) {
  Rests rests(1);
  Duration lost{};
  Duration passed{};
  Duration last{};
  while (passed < 20s) {
    const Duration rest = rests.after_work({2 * kLook, kLook, kLook / 2});  // he gets half
    EXPECT_EQ(rest, std::clamp<Duration>(2 * last, kLook, 1s));
    EXPECT_EQ(rests.after_rest({rest, rest / 2, 0ms}), 0ms);
    lost += kLook;
    passed += 2 * kLook + rest;
    last = rest;
  }
  EXPECT_LT(lost, passed / 50);
  for (; last > kLook; last /= 2) EXPECT_EQ(rests.after_work({kLook, kLook, kLook / 2}), 0ms);
  EXPECT_LE(rests.after_work({2 * kLook, kLook, kLook / 2}), 2 * kLook);
}

TEST(Rests, AStrangerOnOneOfManyCoresCounts) {
  Rests rests(8);
  EXPECT_EQ(rests.after_work({kLook, 8 * kLook, kLook}), 0ms);
  EXPECT_GT(rests.after_work({kLook, 8 * kLook - kLook / 2, kLook}), 0ms);
}

TEST(Rests, AreNotTakenForTheNapsOfManyCores) {
  for (const int cpus : {1, 2, 8, 16}) {
    Rests rests(cpus);
    const Duration napped = cpus * Rests::kNap * 3 / 2;  // it wakes up a little later
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(rests.after_work({kLook, cpus * kLook - napped, kLook}), 0ms) << cpus;
      EXPECT_GT(Rests(cpus).after_work({kLook, cpus * kLook - napped - kLook / 2, kLook}), 0ms) << cpus;
    }
  }
}

TEST(Rests, AreTakenInALongWaitUntilThisProcessWorks) {
  Rests rests(1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(rests.after_work({kLook, kLook, kLook}), 0ms);
  Duration rest = rests.after_work({kLook, kLook, kLook});
  EXPECT_EQ(rest, kLook);
  for (int i = 0; i < 10; ++i) rest = rests.after_rest({rest, rest / 100, rest / 1000});
  EXPECT_EQ(rest, Rests::kLongestInWait);
  EXPECT_EQ(rests.after_rest({rest, rest / 2, 0ms}), 0ms);
  EXPECT_EQ(rests.after_work({kLook, kLook, kLook}), 0ms);
}

TEST(Rests, GoOnInALongWaitBesideAStranger) {
  Rests rests(1);
  Duration used{};
  for (Duration passed{}; passed < 10s;) {
    Duration rest = rests.after_work({2 * kLook, kLook, kLook});
    used += kLook;
    while (rest > 0ms && passed < 10s) {
      passed += rest;
      rest = rests.after_rest({rest, 0ms, 0ms});
    }
  }
  EXPECT_LE(used, 5 * kLook);
}

/// The ids of the threads that keep CPUs awake.
std::vector<pid_t> idle_threads() {
  std::vector<pid_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "tnt-awake") found.push_back(std::stoi(task.path().filename()));
  }
  return found;
}

/// Beside busy processes idle priority may wait for seconds.
constexpr Duration kLate = 60s;

bool all_ended() {
  const Deadline deadline = Deadline::after(kLate);
  while (!idle_threads().empty() && !deadline.passed()) std::this_thread::sleep_for(1ms);
  return idle_threads().empty();
}

std::vector<int> all_cpus() {
  CpuMask mask;
  EXPECT_TRUE(mask.read());
  return mask.cpus();
}

std::unique_ptr<Awake> on_all_cpus() {
  auto awake = Awake::create(all_cpus());
  EXPECT_TRUE(awake.ok()) << awake.status().message();
  return std::move(awake).value();
}

/// Returns true once the threads have used `more`.
bool works(const Awake& awake, Duration more) {
  const Duration before = awake.cpu_time();
  const Deadline deadline = Deadline::after(kLate);
  while (awake.cpu_time() - before < more && !deadline.passed()) std::this_thread::sleep_for(1ms);
  return awake.cpu_time() - before >= more;
}

Duration used_in(const Awake& awake, Duration time) {
  const Duration before = awake.cpu_time();
  std::this_thread::sleep_for(time);
  return awake.cpu_time() - before;
}

int sleeps_of(pid_t thread) {
  std::ifstream status(text("/proc/self/task/", thread, "/status"));
  for (std::string word; status >> word;) {
    int count = 0;
    if (word == "voluntary_ctxt_switches:" && status >> count) return count;
  }
  return -1;
}

TEST(Awake, HasAThreadOfIdlePriorityForEachCpu) {
  const auto awake = on_all_cpus();
  const auto threads = idle_threads();
  EXPECT_EQ(threads.size(), all_cpus().size());
  for (const pid_t thread : threads) {
    EXPECT_EQ(::sched_getscheduler(thread), SCHED_IDLE);
    cpu_set_t mask;
    EXPECT_EQ(::sched_getaffinity(thread, sizeof mask, &mask), 0);
    EXPECT_EQ(CPU_COUNT(&mask), 1);
  }
}

TEST(Awake, WorksOnlyWhileOn) {
  const auto awake = on_all_cpus();
  EXPECT_LT(used_in(*awake, 200ms), 2ms);
  for (int i = 0; i < 3; ++i) {
    awake->on();
    EXPECT_TRUE(works(*awake, 2ms));
    awake->off();
    const Deadline deadline = Deadline::after(kLate);  // a thread without a CPU sees it late
    while (used_in(*awake, 200ms) >= 2ms && !deadline.passed()) continue;
    EXPECT_FALSE(deadline.passed());
  }
}

TEST(Awake, UsesNothingInALongWait) {
  const auto awake = on_all_cpus();
  awake->on();
  const auto little = 20ms * all_cpus().size();      // 1 %
  const Deadline deadline = Deadline::after(kLate);  // beside busy processes they may begin seconds later
  while (used_in(*awake, 2s) >= little && !deadline.passed()) continue;
  EXPECT_FALSE(deadline.passed());
}

TEST(Awake, NapsForThoseOfOtherSchedulingGroups) {
  const auto awake = on_all_cpus();
  const auto sleeps = [] {
    int sum = 0;
    for (const pid_t thread : idle_threads()) sum += sleeps_of(thread);
    return sum;
  };
  const auto threads = static_cast<int>(idle_threads().size());
  awake->on();
  EXPECT_TRUE(works(*awake, 2ms));
  const int before = sleeps();
  const Duration since = awake->cpu_time();
  const Deadline deadline = Deadline::after(10s);  // beside busy processes they get little
  while (awake->cpu_time() - since < 20 * threads * kLook && !deadline.passed()) {
    const Deadline work = Deadline::after(2ms);  // a long wait would be a rest
    while (!work.passed()) continue;
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GE(sleeps() - before, (awake->cpu_time() - since) / kLook * 9 / 10 - threads);
}

TEST(Awake, EndsWhileOn) {
  auto awake = on_all_cpus();
  awake->on();
  const auto began = Clock::now();
  awake.reset();
  EXPECT_LT(Clock::now() - began, 1s);
  EXPECT_TRUE(all_ended());
}

TEST(Awake, EndsWhileBusyThreadsLeaveItNoTime) {
  std::atomic<bool> stopped{false};
  std::vector<std::thread> busy;
  for (size_t i = 0; i < 2 * all_cpus().size(); ++i)
    busy.emplace_back([&] {
      while (!stopped) pause();
    });
  auto awake = on_all_cpus();
  awake->on();
  std::this_thread::sleep_for(20ms);
  const auto began = Clock::now();
  awake.reset();
  EXPECT_LT(Clock::now() - began, 2s);
  stopped = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_TRUE(all_ended());
}

TEST(Awake, RefusedPriorityIsAnError) {
  const auto refuse = [](pid_t, int, const sched_param*) {
    errno = EPERM;
    return -1;
  };
  const auto refused = Awake::create(all_cpus(), refuse);
  EXPECT_EQ(refused.status().code(), Code::kSystem);
  EXPECT_NE(refused.status().message().find("idle priority"), std::string::npos)
      << refused.status().message();
  EXPECT_TRUE(all_ended());
}

TEST(Awake, PriorityIsReadBack) {
  const auto pretend = [](pid_t, int, const sched_param*) { return 0; };
  EXPECT_FALSE(Awake::create(all_cpus(), pretend).ok());
  EXPECT_TRUE(all_ended());
}

}  // namespace
}  // namespace tarantella::runtime
