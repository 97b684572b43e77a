#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <optional>
#include <thread>
#include <vector>

#include "job_name.h"
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
  std::thread rank2([&] { other = rendezvous(job, 2, 4, Deadline::after(10s)).status(); });
  const Status status = rendezvous(job, 0, 4, Deadline::after(300ms)).status();
  rank2.join();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("did not come in time: 1, 3;"), std::string::npos) << status.message();
  EXPECT_EQ(other->code(), Code::kTimeout);
}

TEST(Rendezvous, EndsWithoutRankZero) {
  const Status status = rendezvous(new_job_name(), 1, 2, Deadline::after(50ms)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("no rank 0"), std::string::npos) << status.message();
}

TEST(Rendezvous, RefusesAnotherSize) {
  const std::string job = new_job_name();
  std::optional<Status> other;
  std::thread rank1([&] { other = rendezvous(job, 1, 3, Deadline::after(10s)).status(); });
  const Status status = rendezvous(job, 0, 2, Deadline::after(10s)).status();
  rank1.join();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(other->message(), status.message());
}

TEST(Rendezvous, RefusesTwoOfOneRank) {
  const std::string job = new_job_name();
  std::thread first([&] { (void)rendezvous(job, 1, 3, Deadline::after(10s)); });
  std::thread second([&] { (void)rendezvous(job, 1, 3, Deadline::after(10s)); });
  const Status status = rendezvous(job, 0, 3, Deadline::after(10s)).status();
  first.join();
  second.join();
  EXPECT_EQ(status.code(), Code::kMismatch);
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
