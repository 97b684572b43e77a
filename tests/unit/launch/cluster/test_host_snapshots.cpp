#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "launch/cluster/host_snapshots.h"

namespace tarantella::launch {
namespace {

using Kind = Message::Kind;

class Snapshots : public testing::Test {
 protected:
  Snapshots() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()), 0);
    agent_.emplace(Fd(pair[0]));
    coordinator_.emplace(Fd(pair[1]));
  }

  static void keep(SnapshotMemory& memory, const std::string& content, char sequence) {
    memory.clear_older();
    ASSERT_TRUE(memory.append_to_older(content + std::string(SnapshotMemory::kMark) + sequence +
                                       std::string(7, '\0')));
  }

  std::optional<Connection> agent_, coordinator_;
  SnapshotMemory there_ = SnapshotMemory::make().value(), here_ = SnapshotMemory::make().value();
};

TEST_F(Snapshots, ArriveWholeAndLaterMessagesStay) {
  for (const size_t bytes : {size_t{3}, size_t{1} << 20, (size_t{5} << 20) + 7}) {
    const std::string content(bytes, static_cast<char>('a' + bytes % 26));
    keep(there_, content, static_cast<char>(there_.newest() + 1));
    std::thread sender([&] {
      coordinator_->send(Kind::kJob, "job");
      send_snapshot(there_, *coordinator_);
      coordinator_->send(Kind::kStart);
      coordinator_->flush(Deadline::after(10s));
    });
    EXPECT_TRUE(receive_snapshot(here_, *agent_));
    std::vector<Message> rest = agent_->wait_for_messages(Deadline::after(10s));
    sender.join();
    ASSERT_EQ(rest.size(), 1u);
    EXPECT_EQ(rest[0].kind, Kind::kStart);
    EXPECT_EQ(here_.newest(), there_.newest());
    EXPECT_EQ(here_.read_newest(0, 2 * bytes), there_.read_newest(0, 2 * bytes));
  }
}

TEST_F(Snapshots, NoneIsSaidAtOnce) {
  send_snapshot(there_, *coordinator_);
  EXPECT_TRUE(receive_snapshot(here_, *agent_));
  EXPECT_EQ(here_.newest(), 0u);
}

TEST_F(Snapshots, WhatIsCutLeavesTheEarlierOne) {
  keep(here_, "earlier", 1);
  coordinator_->send(Kind::kSnapshot, "half");
  coordinator_->flush(Deadline::after(10s));
  coordinator_->close();
  EXPECT_FALSE(receive_snapshot(here_, *agent_));
  EXPECT_EQ(here_.newest(), 1u);
  EXPECT_FALSE(receive_snapshot(here_, *agent_)) << "the peer is gone";
}

TEST_F(Snapshots, AreAnnouncedByNumber) {
  announce_snapshot(there_, *agent_);
  keep(there_, "first", 9);
  announce_snapshot(there_, *agent_);
  agent_->flush(Deadline::after(10s));
  const std::vector<Message> messages = coordinator_->read();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(decode_number(messages[0]), 9u);
}

}  // namespace
}  // namespace tarantella::launch
