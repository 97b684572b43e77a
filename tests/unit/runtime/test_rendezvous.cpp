#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
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

#include "base/mac.h"
#include "captured.h"
#include "job_name.h"
#include "runtime/cpu_mask.h"
#include "runtime/job_barrier.h"
#include "runtime/rank_status_file.h"
#include "runtime/rendezvous.h"

namespace tarantella::runtime {
namespace {

ino_t inode_of(const Fd& fd) {
  struct stat found{};
  ::fstat(fd.get(), &found);
  return found.st_ino;
}

/// The name of this user's rendezvous.
std::string path_of(const std::string& job) {
  return text("tarantella-", hex(mac(key_of(job), text("meeting of user ", ::getuid()))));
}

/// Invalid if it cannot be bound.
Fd listen_at(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), name.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const bool listens = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0 &&
                       ::listen(listener.get(), 5) == 0;
  return listens ? std::move(listener) : Fd();
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
  EXPECT_NE(status.message().find("did not join in time: 1, 3;"), std::string::npos) << status.message();
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
    const std::string path = path_of(job);
    if (::setuid(65534) != 0) ::_exit(1);
    const Fd listener = listen_at(path);
    const bool bound = listener.valid();
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
  std::vector<RankStatusFile> launchers;  // a new one each time: ranks may look at any moment
  for (const int ended : {0, 1}) {
    const RankStatusFile& launcher = launchers.emplace_back(RankStatusFile::make(3));
    ASSERT_GE(launcher.fd(), 0);
    ::setenv(RankStatusFile::kVariable, std::to_string(launcher.fd()).c_str(), 1);
    const std::string job = new_job_name();
    const auto wait = [&](int rank, Status& status) {
      status = rendezvous(job, rank, 3, Deadline::after(60s), {.rank_status = RankStatusFile::inherited(3)})
                   .status();
    };
    Status first, second;
    std::thread one([&] { wait(ended == 0 ? 1 : 0, first); });
    std::thread other([&] { wait(2, second); });
    std::this_thread::sleep_for(500ms);
    launcher.set_ended(ended == 0 ? 1 : 0, 3);  // one that failed is not what is said
    launcher.set_ended(ended, 0);
    one.join();
    other.join();
    for (const Status& status : {first, second}) {
      EXPECT_EQ(status.code(), Code::kPeerLost);
      EXPECT_NE(status.message().find(text("rank ", ended, " ended (exit code 0) before it joined")),
                std::string::npos)
          << status.message();
    }
  }
  EXPECT_EQ(RankStatusFile::inherited(3).exit_code(1), 0);
  EXPECT_EQ(RankStatusFile::inherited(3).exit_code(2), std::nullopt);
  EXPECT_EQ(RankStatusFile::inherited(3, 1).exit_code(0), 0) << "numbered from rank 1 on";
  EXPECT_EQ(RankStatusFile::inherited(2).exit_code(1), std::nullopt) << "another job's file";
  const Fd other(::open("/dev/null", O_RDONLY));
  for (const std::string& file : {std::to_string(other.get()), std::string("999"), std::string("x")}) {
    ::setenv(RankStatusFile::kVariable, file.c_str(), 1);
    EXPECT_EQ(RankStatusFile::inherited(3).exit_code(1), std::nullopt);
  }
  ::unsetenv(RankStatusFile::kVariable);
  EXPECT_EQ(RankStatusFile::inherited(3).exit_code(1), std::nullopt);
}

/// A launcher of three ranks, which this process inherits: its table, and its pipe of reports.
class JobBarrier : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(ends_), 0);
    struct stat found{};
    ::fstat(ends_[1], &found);
    ::setenv("TNT_REPORT", text(ends_[1], ":", found.st_ino).c_str(), 1);
    ::setenv(RankStatusFile::kVariable, std::to_string(launcher_.fd()).c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv(RankStatusFile::kVariable);
    ::unsetenv("TNT_REPORT");
    for (const int end : ends_) ::close(end);
  }
  /// Rank, kind and text of the next record, which the launcher reads.
  std::string next_report() const {
    int32_t head[4] = {};
    if (::read(ends_[0], head, sizeof head) != sizeof head) return "";
    std::string said(static_cast<size_t>(head[3]), ' ');
    (void)!::read(ends_[0], said.data(), said.size());
    return text(head[0], " ", head[1], " ", said);
  }
  static Status enter(int rank, Duration limit = 60s, Duration warn_every = 60s) {
    return job_barrier(rank, 3, Deadline::after(limit),
                       {.warn_every = warn_every, .rank_status = RankStatusFile::inherited(3)});
  }

  const RankStatusFile launcher_ = RankStatusFile::make(3);
  int ends_[2] = {-1, -1};
};

TEST_F(JobBarrier, EndsWhenAllHaveCome) {
  std::thread launcher([&] {
    EXPECT_EQ(next_report(), "1 4 ");
    for (const int rank : {1, 2, 0}) launcher_.set_joined(rank);
  });
  const Status status = enter(1);
  launcher.join();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(JobBarrier, NamesTheRanksThatDidNotCome) {
  launcher_.set_joined(1);
  launcher_.set_ended(2, 3);  // its launcher says why
  const Status status = enter(1, 300ms);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("did not join in time: 0, 2;"), std::string::npos) << status.message();
}

TEST_F(JobBarrier, EndsAtOnceIfARankHasEnded) {
  launcher_.set_joined(1);
  launcher_.set_ended(2, 0);
  const Status status = enter(1);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 2 ended (exit code 0) before it joined, and rank 1 waits"),
            std::string::npos)
      << status.message();
}

TEST_F(JobBarrier, OnlyTheFirstRankThatWaitsWarns) {
  for (const int rank : {1, 2}) launcher_.set_joined(rank);
  testing::internal::CaptureStderr();
  EXPECT_EQ(enter(2, 500ms, 100ms).code(), Code::kTimeout);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(next_report(), "2 4 ");
  testing::internal::CaptureStderr();
  EXPECT_EQ(enter(1, 500ms, 100ms).code(), Code::kTimeout);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("rank 1 has waited 0 s for rank 0 to join the job"), std::string::npos) << said;
  EXPECT_EQ(next_report(), "1 4 ");
  EXPECT_EQ(next_report(), "1 3 rank 1 has waited 0 s for rank 0 to join the job");
}

TEST_F(JobBarrier, IsLeftOutWithoutALauncher) {
  ::setenv("TNT_REPORT", text(ends_[1], ":1").c_str(), 1);  // another file, or none
  EXPECT_TRUE(enter(1).ok());
  ::unsetenv("TNT_REPORT");
  EXPECT_TRUE(enter(1).ok());
}

TEST(Rendezvous, EndsAtOnceIfARankThatHadComeHasEnded) {
  const RankStatusFile launcher = RankStatusFile::make(3);
  ASSERT_GE(launcher.fd(), 0);
  ::setenv(RankStatusFile::kVariable, std::to_string(launcher.fd()).c_str(), 1);
  const std::string job = new_job_name();
  Status first, second;
  std::thread other([&] { second = rendezvous(job, 1, 3, Deadline::after(20s)).status(); });
  std::thread zero([&] {
    first =
        rendezvous(job, 0, 3, Deadline::after(20s), {.rank_status = RankStatusFile::inherited(3)}).status();
  });
  std::this_thread::sleep_for(500ms);
  launcher.set_ended(1, 0);
  zero.join();
  other.join();
  ::unsetenv(RankStatusFile::kVariable);
  for (const Status& status : {first, second}) {
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 1 ended (exit code 0) before it joined"), std::string::npos)
        << status.message();
  }
}

TEST(Rendezvous, LosesRankZeroThatDiesBeforeItHasReadTheHello) {
  const std::string job = new_job_name();
  Fd listener = listen_at(path_of(job));
  ASSERT_TRUE(listener.valid());
  Status status;
  std::thread rank1([&] { status = rendezvous(job, 1, 2, Deadline::after(20s)).status(); });
  Fd peer(::accept(listener.get(), nullptr, nullptr));
  pollfd hello{peer.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&hello, 1, 20000), 1);
  listener = Fd();
  peer = Fd();  // as the kernel does for a process that is killed: ECONNRESET
  rank1.join();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 0 ended before all ranks had joined"), std::string::npos)
      << status.message();
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
    const Duration failure_delay = all_come ? 3s : Duration(500ms);
    std::thread zero([&] {
      first = rendezvous(job, 0, 3, Deadline::after(20s), {.failure_delay = failure_delay}).status();
    });
    ::waitpid(child, nullptr, 0);
    std::thread two;
    if (all_come) two = std::thread([&] { second = rendezvous(job, 2, 3, Deadline::after(20s)).status(); });
    zero.join();
    if (all_come) two.join();
    EXPECT_EQ(first.code(), Code::kPeerLost);
    EXPECT_NE(first.message().find("rank 1 ended before all ranks had joined"), std::string::npos)
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
  EXPECT_FALSE(one->intersects(*other));
  other->add(3000);
  EXPECT_TRUE(one->intersects(*other));
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
