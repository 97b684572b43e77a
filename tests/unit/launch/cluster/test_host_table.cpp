#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "launch/cluster/host_table.h"

namespace tarantella::launch {
namespace {

/// A connection, and its other end.
std::array<std::unique_ptr<Connection>, 2> connected() {
  std::array<int, 2> pair{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
  return {std::make_unique<Connection>(Fd(pair[0])), std::make_unique<Connection>(Fd(pair[1]))};
}

class AHostTable : public testing::Test {
 protected:
  HostTable hosts_{{{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 1}}};
};

TEST_F(AHostTable, NamesThoseThatHaveNotComeAndThenThoseThatAreNotReady) {
  EXPECT_EQ(hosts_.unready_hosts(), "hosts a, b, c");
  for (const size_t index : {0U, 2U}) hosts_[index].connection = std::move(connected()[0]);
  hosts_[0].ready = true;
  EXPECT_EQ(hosts_.unready_hosts(), "host b");
  hosts_[1].connection = std::move(connected()[0]);
  EXPECT_EQ(hosts_.unready_hosts(), "hosts b, c");
}

TEST_F(AHostTable, SaysAWarningOfSeveralHostsOnce) {
  hosts_[0].warnings = {"no GPU"};
  hosts_[1].warnings = {"2 ranks share 1 core"};
  hosts_[2].warnings = {"no GPU"};
  EXPECT_EQ(hosts_.warnings(), (std::vector<std::string>{"WARNING: host b: 2 ranks share 1 core",
                                                         "WARNING: hosts a, c: no GPU"}));
}

TEST_F(AHostTable, TellsOfRanksThatJoinWithAPauseUntilAllHave) {
  auto [near, far] = connected();
  hosts_[0].connection = std::move(near);
  const auto sent_states = [&] {
    hosts_.flush_all(1s);
    const std::vector<Message> messages = far->read();
    return messages.empty() ? std::vector<int>()
                            : decode_states(messages.back()).value_or(std::vector<int>());
  };
  hosts_.receive_rank_status(1, {1});
  hosts_.receive_rank_status(2, {1, 1});  // is no list of this host
  hosts_.send_rank_status(3600s);
  EXPECT_EQ(sent_states(), (std::vector{0, 0, 1, 0}));
  hosts_.receive_rank_status(2, {1});
  hosts_.send_rank_status(3600s);
  EXPECT_TRUE(sent_states().empty());
  hosts_.receive_rank_status(0, {1, 1});
  hosts_.send_rank_status(3600s);
  EXPECT_EQ(sent_states(), (std::vector{1, 1, 1, 1}));
  hosts_.finish_all();
  EXPECT_TRUE(hosts_.all_finished());
  hosts_.broadcast(Message::Kind::kEnd);
  EXPECT_TRUE(sent_states().empty());
}

}  // namespace
}  // namespace tarantella::launch
