// How ranks react to another rank that is stopped or dies.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>

#include "run_processes.h"

namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using tarantella::all_end_well;
using tarantella::require;
using tarantella::run_processes;
using tarantella::start_processes;

/// Messages between the test and its ranks.
struct Notes {
  std::atomic<int> waiting;
  std::atomic<bool> go_on;
};

Notes& new_notes() {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (memory) Notes{};
}

TEST(LivesOfRanks, SurviveAPauseOfAllThatIsLongerThanTheTimeout) {
  Notes& notes = new_notes();
  const auto ranks = start_processes(
      3,
      [&](int rank, tnt_context* context) {
        require(tnt_barrier(context, "begin") == TNT_OK, "begin");
        ++notes.waiting;
        while (rank == 2 && !notes.go_on) std::this_thread::sleep_for(1ms);  // busy elsewhere
        require(tnt_barrier(context, "long") == TNT_OK, "the call in which the job was stopped");
      },
      4);
  while (notes.waiting != 3) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(200ms);
  for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
  std::this_thread::sleep_for(4500ms);
  for (const pid_t rank : ranks) {
    ::kill(rank, SIGCONT);
    std::this_thread::sleep_for(200ms);
  }
  notes.go_on = true;
  EXPECT_TRUE(all_end_well(ranks));
}

TEST(LivesOfRanks, ADeathIsNoticedInAWaitForAnotherRank) {
  Notes& notes = new_notes();
  auto ranks = start_processes(3, [&](int rank, tnt_context* context) {
    require(tnt_barrier(context, "begin") == TNT_OK, "begin");
    if (rank == 2) ::_exit(0);  // without a word
    if (rank == 0) {            // makes no call, and is the first that rank 1 waits for
      while (!notes.go_on) std::this_thread::sleep_for(1ms);
      return;
    }
    const bool ended = tnt_barrier(context, "end") == TNT_PEER_LOST;
    require(ended && !notes.go_on, "the wait for a busy rank");
    require(std::string(tnt_last_error()).find("rank 2 has died") != std::string::npos, "the reason");
  });
  std::thread late([&] {
    for (int i = 0; i < 1000 && !notes.go_on; ++i) std::this_thread::sleep_for(20ms);
    notes.go_on = true;
  });
  const bool first = all_end_well({ranks[1]});
  notes.go_on = true;
  late.join();
  EXPECT_TRUE(first);
  EXPECT_TRUE(all_end_well({ranks[0], ranks[2]}));
}

TEST(LivesOfRanks, ALeaveIsToldFromADeath) {
  const auto end_of_rank_1 = [](bool leaves, const char* reason) {
    return run_processes(2, [=](int rank, tnt_context* context) {
      require(tnt_barrier(context, "begin") == TNT_OK, "begin");
      if (rank == 1 && leaves) return;
      if (rank == 1) ::_exit(0);
      require(tnt_barrier(context, "end") == TNT_PEER_LOST, "the end of rank 1");
      require(std::string(tnt_last_error()).find(reason) != std::string::npos, "the reason");
    });
  };
  EXPECT_TRUE(end_of_rank_1(true, "rank 1 has ended"));
  EXPECT_TRUE(end_of_rank_1(false, "rank 1 has died"));
}

TEST(LivesOfRanks, ADeathIsNoticedIfNoRankWaits) {
  EXPECT_TRUE(all_end_well(start_processes(2, [&](int rank, tnt_context* context) {
    require(tnt_barrier(context, "begin") == TNT_OK, "begin");
    if (rank == 1) ::_exit(0);
    for (int i = 0; i < 1500 && tnt_failure(context) == TNT_OK; ++i) std::this_thread::sleep_for(20ms);
    require(tnt_failure(context) == TNT_PEER_LOST, "the death of rank 1");
    require(std::string(tnt_last_error()) == "rank 1 has died; its output or its launcher says why",
            "the cure");
  })));
}

}  // namespace
