#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "job_name.h"
#include "support/fake_memory.h"
#include "transport/shm/shm_memory.h"

namespace tarantella::transport {
namespace {

Word& word_in(const Region& region) { return *reinterpret_cast<Word*>(region.bytes.data()); }

std::unique_ptr<NodeMemory> connect(const std::string& job, int rank) {
  auto memory = make_shm_memory(job, rank, 2, Deadline::after(20s));
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return std::move(memory).value();
}

/// Rank 1 of two, as a child process that runs `life` and then waits to be killed.
template <typename Life>
pid_t start_peer(const std::string& job, Life life) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  auto memory = connect(job, 1);
  life(*memory);
  while (true) ::pause();
}

void kill_and_reap(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(ShmMemory, SharesZeroedMemoryInTheOrderOfMapping) {
  const std::string job = new_job_name();
  const pid_t peer = start_peer(job, [](NodeMemory& memory) {
    (void)memory.map(100);
    const auto second = memory.map(5'000'000);
    word_in(second.value()).store(42);
  });
  const auto memory = connect(job, 0);
  const auto first = memory->map(100);
  const auto second = memory->map(5'000'000);
  ASSERT_TRUE(first.ok() && second.ok());
  while (word_in(second.value()).load() != 42) std::this_thread::yield();
  EXPECT_EQ(word_in(first.value()).load(), 0u);
  EXPECT_EQ(second.value().bytes.size(), 5'000'000u);
  EXPECT_EQ(second.value().bytes.back(), std::byte{0});
  kill_and_reap(peer);
}

TEST(ShmMemory, WakesASleeperOfAnotherProcess) {
  const std::string job = new_job_name();
  const pid_t peer = start_peer(job, [](NodeMemory& memory) {
    const auto region = memory.map(64);
    std::this_thread::sleep_for(20ms);
    word_in(region.value()).store(1);
    memory.wake(word_in(region.value()));
  });
  const auto memory = connect(job, 0);
  const auto region = memory->map(64);
  const Deadline limit = Deadline::after(30s);
  while (word_in(region.value()).load() == 0 && !limit.passed())
    memory->sleep(word_in(region.value()), 0, 60s);
  EXPECT_FALSE(limit.passed());
  kill_and_reap(peer);
}

TEST(ShmMemory, WakesASleeperOfOneOfTheBits) {
  const std::string job = new_job_name();
  const pid_t peer = start_peer(job, [](NodeMemory& memory) {
    const auto region = memory.map(64);
    std::this_thread::sleep_for(20ms);
    word_in(region.value()).store(1);
    memory.wake(word_in(region.value()), 0b100);
  });
  const auto memory = connect(job, 0);
  const auto region = memory->map(64);
  const Deadline limit = Deadline::after(30s);
  while (word_in(region.value()).load() == 0 && !limit.passed())
    memory->sleep(word_in(region.value()), 0, 60s, 0b110);
  EXPECT_FALSE(limit.passed());
  kill_and_reap(peer);
}

TEST(ShmMemory, SeesADeathAlsoWhenAForkedChildLivesOn) {
  const std::string job = new_job_name();
  int lifeline[2];
  ASSERT_EQ(::pipe(lifeline), 0);
  const pid_t peer = start_peer(job, [&](NodeMemory& memory) {
    const auto region = memory.map(64);
    if (::fork() == 0) {  // a data worker that outlives its parent, holding all its files
      char byte = 0;
      ::close(lifeline[1]);
      (void)!::read(lifeline[0], &byte, 1);
      ::_exit(0);
    }
    word_in(region.value()).store(1);
  });
  ::close(lifeline[0]);
  const auto memory = connect(job, 0);
  const auto region = memory->map(64);
  while (word_in(region.value()).load() == 0) std::this_thread::yield();
  EXPECT_FALSE(memory->has_ended(1));
  ::kill(peer, SIGSTOP);
  EXPECT_FALSE(memory->has_ended(1));
  kill_and_reap(peer);
  EXPECT_TRUE(memory->has_ended(1));
  ::close(lifeline[1]);
}

TEST(ShmMemory, SeesADeathWhereEachRankHasProcessNumbersOfItsOwn) {
  const std::string job = new_job_name();
  // as in containers: the first process that each of them starts has the number 1
  const auto in_a_namespace = [](const std::function<void()>& life) {
    const pid_t outside = ::fork();
    if (outside != 0) return outside;
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t first = ::fork();
    if (first == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      life();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(first, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  };
  const pid_t watched = in_a_namespace([&] {
    const auto memory = connect(job, 1);
    word_in(memory->map(64).value()).store(1);
    std::this_thread::sleep_for(100ms);
    ::raise(SIGKILL);
    ::_exit(::getpid());  // the first process of a namespace ends by no signal of its own
  });
  const pid_t watcher = in_a_namespace([&] {
    const auto memory = connect(job, 0);
    const auto region = memory->map(64);
    while (word_in(region.value()).load() == 0) std::this_thread::yield();
    const Deadline limit = Deadline::after(20s);
    while (!memory->has_ended(1) && !limit.passed()) std::this_thread::sleep_for(1ms);
    ::_exit(memory->has_ended(1) ? 0 : 3);
  });
  int status = 0;
  ::waitpid(watched, &status, 0);
  const bool possible = WEXITSTATUS(status) != 77;
  if (!possible) ::kill(watcher, SIGKILL);
  ::waitpid(watcher, &status, 0);
  if (!possible) GTEST_SKIP() << "no PID namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ShmMemory, SeesTheEndOfARankThatMetTheOthersAndNeverJoined) {
  const runtime::RankStatusFile launcher = runtime::RankStatusFile::make(2);
  ASSERT_GE(launcher.fd(), 0);
  ::setenv(runtime::RankStatusFile::kVariable, std::to_string(launcher.fd()).c_str(), 1);
  const std::string job = new_job_name();
  std::thread other([&] { EXPECT_TRUE(runtime::rendezvous(job, 1, 2, Deadline::after(20s)).ok()); });
  const auto memory = make_shm_memory(job, 0, 2, Deadline::after(20s),
                                      {.rank_status = runtime::RankStatusFile::inherited(2)});
  other.join();
  ::unsetenv(runtime::RankStatusFile::kVariable);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_FALSE(memory.value()->has_ended(1));
  launcher.set_ended(1, 0);
  EXPECT_TRUE(memory.value()->has_ended(1));
}

TEST(ShmMemory, LeavesNothingBehind) {
  const std::string job = new_job_name();
  for (int i = 0; i < 3; ++i) {  // the same name again: the first meeting left no socket
    const pid_t peer = ::fork();
    if (peer == 0) {
      connect(job, 1).reset();
      ::_exit(0);
    }
    connect(job, 0).reset();
    int status = 0;
    ::waitpid(peer, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

uint64_t resident_bytes_of_memory_files() {
  uint64_t blocks = 0;
  for (int fd = 0; fd < 64; ++fd) {
    char name[64] = {};
    struct stat found{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), name, sizeof(name) - 1) > 0 &&
        std::string(name).find("memfd:tarantella") != std::string::npos && ::fstat(fd, &found) == 0) {
      blocks += static_cast<uint64_t>(found.st_blocks);
    }
  }
  return blocks * 512;
}

TEST(ShmMemory, GivesMemoryBackWhenNoRankHoldsARegion) {
  constexpr size_t kBytes = 32 << 20;
  const std::string job = new_job_name();
  std::unique_ptr<NodeMemory> other;
  std::thread thread([&] { other = connect(job, 1); });
  const auto memory = connect(job, 0);
  thread.join();
  {
    const auto mine = memory->map(kBytes);
    const auto theirs = other->map(kBytes);
    ASSERT_TRUE(mine.ok() && theirs.ok());
    std::memset(mine.value().bytes.data(), 1, kBytes);
    EXPECT_GE(resident_bytes_of_memory_files(), kBytes);
  }
  EXPECT_LT(resident_bytes_of_memory_files(), kBytes / 4);
}

TEST(FakeMemory, SimulatesDeathAndLackOfMemory) {
  FakeNode node(2);
  const auto memory = node.memory(0);
  EXPECT_FALSE(memory->has_ended(1));
  node.end(1);
  EXPECT_TRUE(memory->has_ended(1));
  node.set_available_bytes(10);
  EXPECT_EQ(memory->available_bytes(), 10u);
}

}  // namespace
}  // namespace tarantella::transport
