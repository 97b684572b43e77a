#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "captured.h"
#include "job_name.h"
#include "runtime/cpu_mask.h"
#include "runtime/ended.h"
#include "runtime/rendezvous.h"

namespace tarantella::runtime {
namespace {

ino_t inode_of(const Fd& fd) {
  struct stat found{};
  ::fstat(fd.get(), &found);
  return found.st_ino;
}

TEST(Rendezvous, GivesAllRanksOneFile) {
  constexpr int kSize = 5;
  const std::string job = new_job_name();
  std::vector<ino_t> inodes(kSize);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto memory = rendezvous(job, rank, kSize, Deadline::after(20s));
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      inodes[static_cast<size_t>(rank)] = inode_of(memory.value());
    });
  }
  for (auto& rank : ranks) rank.join();
  for (const ino_t inode : inodes) EXPECT_EQ(inode, inodes[0]);
}

TEST(Rendezvous, WorksBetweenProcessesWhicheverComesFirst) {
  for (const int child_rank : {0, 1}) {
    const std::string job = new_job_name();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(rendezvous(job, child_rank, 2, Deadline::after(20s)).ok() ? 0 : 1);
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(rendezvous(job, 1 - child_rank, 2, Deadline::after(20s)).ok());
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(Rendezvous, NamesTheRanksThatDidNotCome) {
  const std::string job = new_job_name();
  std::optional<Status> other;
  std::thread rank2([&] { other = rendezvous(job, 2, 4, Deadline::after(20s)).status(); });
  const Status status = rendezvous(job, 0, 4, Deadline::after(2s)).status();
  rank2.join();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("did not come in time: 1, 3;"), std::string::npos) << status.message();
  EXPECT_EQ(other->code(), Code::kTimeout);
}

TEST(Rendezvous, SaysThatRankZeroDidNotCome) {
  const Status status = rendezvous(new_job_name(), 1, 2, Deadline::after(50ms)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("no rank 0"), std::string::npos) << status.message();
}

TEST(Rendezvous, RefusesRanksThatDifferInTheSize) {
  const std::string job = new_job_name();
  std::optional<Status> other;
  std::thread rank1([&] { other = rendezvous(job, 1, 3, Deadline::after(10s)).status(); });
  const Status status = rendezvous(job, 0, 2, Deadline::after(10s)).status();
  rank1.join();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(other->message(), status.message());
}

TEST(Rendezvous, RefusesTwoProcessesWithOneRank) {
  const std::string job = new_job_name();
  std::thread first([&] { (void)rendezvous(job, 1, 3, Deadline::after(10s)); });
  std::thread second([&] { (void)rendezvous(job, 1, 3, Deadline::after(10s)); });
  const Status status = rendezvous(job, 0, 3, Deadline::after(10s)).status();
  first.join();
  second.join();
  EXPECT_EQ(status.code(), Code::kMismatch);
}

TEST(Rendezvous, SaysWhoHoldsTheNameOfItsJob) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can play another user";
  const std::string job = new_job_name();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string path = text("tarantella-", ::getuid(), "-", job);
    std::copy(path.begin(), path.end(), name.sun_path + 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    if (::setuid(65534) != 0) ::_exit(1);
    const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const bool bound = ::bind(listener, reinterpret_cast<const sockaddr*>(&name), length) == 0;
    ::listen(listener, 5);
    (void)!::write(ready[1], bound ? "y" : "n", 1);
    while (true) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  for (const int rank : {0, 1}) {
    const Status status = rendezvous(job, rank, 2, Deadline::after(10s)).status();
    EXPECT_NE(status.message().find("user 65534"), std::string::npos) << status.message();
  }
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
}

TEST(Rendezvous, MakesAFileThatNobodyCanRun) {
  const auto memory = rendezvous(new_job_name(), 0, 1, Deadline::after(1s));
  ASSERT_TRUE(memory.ok());
  constexpr unsigned kNoExecSeal = 8;  // as memfd_create(2) takes it, from Linux 6.3 on
  const Fd known(::memfd_create("test", kNoExecSeal));
  if (!known.valid()) GTEST_SKIP() << "this kernel has no such seal";
  struct stat found{};
  ::fstat(memory.value().get(), &found);
  EXPECT_EQ(found.st_mode & 0111u, 0u);
}

TEST(Rendezvous, SaysForWhomItWaits) {
  constexpr const char* kLine = " s for rank 1 to join the job";
  const std::string job = new_job_name();
  testing::internal::CaptureStderr();
  std::thread late([&] {
    for (const Deadline end = Deadline::after(15s);
         captured_so_far().find(kLine) == std::string::npos && !end.passed();)
      std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(rendezvous(job, 1, 3, Deadline::after(20s)).ok());
  });
  std::thread third([&] { EXPECT_TRUE(rendezvous(job, 2, 3, Deadline::after(20s)).ok()); });
  EXPECT_TRUE(rendezvous(job, 0, 3, Deadline::after(kForever), {.warn_every = 150ms}).ok());
  late.join();
  third.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("rank 0 has waited "), std::string::npos) << said;
  EXPECT_NE(said.find(kLine), std::string::npos) << said;
}

TEST(Rendezvous, EndsAtOnceIfARankHasEndedBeforeItCame) {
  std::vector<Ended> launchers;  // a new one each time: ranks may look at any moment
  for (const int ended : {0, 1}) {
    const Ended& launcher = launchers.emplace_back(Ended::make(3));
    ASSERT_GE(launcher.fd(), 0);
    ::setenv(Ended::kVariable, std::to_string(launcher.fd()).c_str(), 1);
    const std::string job = new_job_name();
    const auto wait = [&](int rank, Status& status) {
      status = rendezvous(job, rank, 3, Deadline::after(60s), {.ended = Ended::inherited(3)}).status();
    };
    Status first, second;
    std::thread one([&] { wait(ended == 0 ? 1 : 0, first); });
    std::thread other([&] { wait(2, second); });
    std::this_thread::sleep_for(500ms);
    launcher.tell(ended == 0 ? 1 : 0, 3);  // one that failed is not what is said
    launcher.tell(ended, 0);
    one.join();
    other.join();
    for (const Status& status : {first, second}) {
      EXPECT_EQ(status.code(), Code::kPeerLost);
      EXPECT_NE(status.message().find(text("rank ", ended, " ended (exit code 0) before it joined")),
                std::string::npos)
          << status.message();
    }
  }
  EXPECT_EQ(Ended::inherited(3).exit_code(1), 0);
  EXPECT_EQ(Ended::inherited(3).exit_code(2), std::nullopt);
  EXPECT_EQ(Ended::inherited(2).exit_code(1), std::nullopt) << "another job's file";
  const Fd other(::open("/dev/null", O_RDONLY));
  for (const std::string& file : {std::to_string(other.get()), std::string("999"), std::string("x")}) {
    ::setenv(Ended::kVariable, file.c_str(), 1);
    EXPECT_EQ(Ended::inherited(3).exit_code(1), std::nullopt);
  }
  ::unsetenv(Ended::kVariable);
  EXPECT_EQ(Ended::inherited(3).exit_code(1), std::nullopt);
}

TEST(Rendezvous, EndsAtOnceIfARankThatHadComeHasEnded) {
  const Ended launcher = Ended::make(3);
  ASSERT_GE(launcher.fd(), 0);
  ::setenv(Ended::kVariable, std::to_string(launcher.fd()).c_str(), 1);
  const std::string job = new_job_name();
  Status first, second;
  std::thread other([&] { second = rendezvous(job, 1, 3, Deadline::after(20s)).status(); });
  std::thread zero(
      [&] { first = rendezvous(job, 0, 3, Deadline::after(20s), {.ended = Ended::inherited(3)}).status(); });
  std::this_thread::sleep_for(500ms);
  launcher.tell(1, 0);
  zero.join();
  other.join();
  ::unsetenv(Ended::kVariable);
  for (const Status& status : {first, second}) {
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 1 ended (exit code 0) before it joined"), std::string::npos)
        << status.message();
  }
}

TEST(Rendezvous, EndsSoonIfARankThatHadComeDies) {
  for (const bool all_come : {false, true}) {
    const std::string job = new_job_name();
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(3);  // in the middle of its wait
      (void)rendezvous(job, 1, 3, Deadline::after(60s));
      ::_exit(0);
    }
    Status first, second;
    const Duration grace = all_come ? 3s : Duration(500ms);
    std::thread zero([&] { first = rendezvous(job, 0, 3, Deadline::after(20s), {.grace = grace}).status(); });
    ::waitpid(child, nullptr, 0);
    std::thread two;
    if (all_come) two = std::thread([&] { second = rendezvous(job, 2, 3, Deadline::after(20s)).status(); });
    zero.join();
    if (all_come) two.join();
    EXPECT_EQ(first.code(), Code::kPeerLost);
    EXPECT_NE(first.message().find("rank 1 ended before all ranks had met"), std::string::npos)
        << first.message();
    if (all_come) {
      EXPECT_EQ(second.message(), first.message());
    }
  }
}

TEST(CpuMask, HoldsMoreThanAThousandCpus) {
  auto one = std::make_unique<CpuMask>();
  auto other = std::make_unique<CpuMask>();
  one->add(3000);
  other->add(3001);
  EXPECT_FALSE(one->meets(*other));
  other->add(3000);
  EXPECT_TRUE(one->meets(*other));
  EXPECT_TRUE(other->has(3001));
  ASSERT_TRUE(one->read());
  EXPECT_TRUE(one->bind());
  EXPECT_FALSE(one->has(3000));
}

TEST(Rendezvous, ChecksItsArguments) {
  EXPECT_EQ(rendezvous("job", 2, 2, Deadline::after(1s)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rendezvous("job", -1, 2, Deadline::after(1s)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rendezvous("", 0, 1, Deadline::after(1s)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rendezvous(std::string(65, 'x'), 0, 1, Deadline::after(1s)).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace tarantella::runtime
