#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <optional>

#include "base/host.h"
#include "launch/cluster/coordinator_link.h"

namespace tarantella::launch {
namespace {

using Kind = Message::Kind;

class ALink : public testing::Test {
 protected:
  ALink() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
    agent_.emplace(Fd(pair[0]));
    coordinator_.emplace(Fd(pair[1]));
    link_.emplace(*agent_);
  }

  std::vector<Message> heard() {
    agent_->flush(Deadline::after(1s));
    return coordinator_->read();
  }

  std::optional<Connection> agent_, coordinator_;
  std::optional<CoordinatorLink> link_;
};

TEST_F(ALink, MakesInstructionsOfMessages) {
  coordinator_->send(Kind::kSignal, encode(Signals::Event{SIGTERM, true}));
  coordinator_->send(Kind::kRankStatus, encode(std::vector{1, 0}));
  coordinator_->send(Kind::kStart);  // is no instruction
  coordinator_->send(Kind::kEnd);
  coordinator_->flush(Deadline::after(1s));
  const std::vector<Frontend::Instruction> instructions = link_->instructions();
  ASSERT_EQ(instructions.size(), 3U);
  EXPECT_EQ(instructions[0].signal.number, SIGTERM);
  EXPECT_TRUE(instructions[0].signal.from_terminal);
  EXPECT_EQ(instructions[1].states, (std::vector{1, 0}));
  EXPECT_EQ(instructions[2].kind, Frontend::Instruction::Kind::kEnd);
  EXPECT_TRUE(link_->instructions().empty());
}

TEST_F(ALink, PassesOnWhatIsWrittenAndThatTheHostRuns) {
  link_->put(false, "out\n");
  link_->put(true, "err\n");
  link_->heartbeat();
  link_->heartbeat();  // too soon for a second message
  const std::vector<Message> messages = heard();
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0].kind, Kind::kOutput);
  EXPECT_EQ(messages[1].kind, Kind::kError);
  EXPECT_EQ(messages[1].content, "err\n");
  EXPECT_EQ(messages[2].kind, Kind::kHeartbeat);
  EXPECT_TRUE(link_->idle());
}

TEST_F(ALink, IsLostWithTheConnectionAndWithWhatHasStartedTheAgent) {
  EXPECT_FALSE(link_->lost());
  EXPECT_FALSE(link_->lost_by_signal(SIGTERM).has_value());
  EXPECT_EQ(link_->lost_by_signal(SIGHUP),
            "the process that started the launcher on " + host_name() + " has ended; the ranks were stopped");
  coordinator_->close();
  EXPECT_TRUE(link_->instructions().empty());
  EXPECT_TRUE(link_->lost());
}

}  // namespace
}  // namespace tarantella::launch
