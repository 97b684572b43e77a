#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "launch/cluster/host_timelines.h"
#include "timeline_on.h"

namespace tarantella::launch {
namespace {

using Kind = Message::Kind;
using timeline::ClockDrift;
using timeline::ClockOffset;

constexpr int64_t kHour = int64_t{3600} * 1'000'000'000;

Options with_timeline() {
  Options options;
  options.timeline = "t.json";
  return options;
}

std::string gradients(size_t count) {
  TimelineOn on(count);
  for (size_t index = 0; index < count; ++index) on.timeline().gradient(1, index);
  const auto bytes = std::as_bytes(on.records());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Two hosts, the second of which has a clock of its own.
class Timelines : public testing::Test {
 protected:
  void send(size_t host, Kind kind, const std::string& content) { timelines_.take(host, {kind, content}); }
  void send_all(size_t host, const ClockDrift& clock) {
    send(host, Kind::kClock, encode(clock));
    for (int rank = assignments_[host].first_rank;
         rank < assignments_[host].first_rank + assignments_[host].ranks; ++rank) {
      send(host, Kind::kRecords, encode(Records{rank, 2, gradients(2)}));
    }
    send(host, Kind::kRecordsEnd, "");
  }
  std::vector<int> ranks() {
    std::vector<int> all;
    for (const timeline::Process& each : timelines_.processes()) all.push_back(each.rank);
    return all;
  }
  std::string missing() const {
    std::string all;
    for (const auto& [host, why] : timelines_.hosts().missing) all += text(host, ": ", why, ";");
    return all;
  }

  const Options options_ = with_timeline();
  const std::vector<HostAssignment> assignments_{{"node1", 0, 2}, {"node2", 2, 1}};
  JobTimelines timelines_{options_, assignments_};
};

TEST_F(Timelines, AreWholeWhenAllHostsHaveSentThem) {
  EXPECT_FALSE(timelines_.complete(0));
  send_all(1, ClockDrift({0, kHour, 9}, {0, kHour, 9}));
  EXPECT_TRUE(timelines_.complete(1));
  EXPECT_FALSE(timelines_.complete(0));
  send_all(0, ClockDrift());
  EXPECT_TRUE(timelines_.complete(0));
  const std::vector<timeline::Process> all = timelines_.processes();
  ASSERT_EQ(ranks(), (std::vector{0, 1, 2}));
  EXPECT_EQ(all[1].host, "node1");
  EXPECT_EQ(all[2].host, "node2");
  EXPECT_EQ(all[2].clock.there(kHour + 5), 5);
  EXPECT_EQ(all[2].timeline.records()[1].index, 1U);
  EXPECT_EQ(all[0].timeline.origin(), all[2].timeline.origin());
  EXPECT_EQ(timelines_.hosts().clocks.size(), 2U);
  EXPECT_EQ(missing(), "");
}

TEST_F(Timelines, OfALostHostAreMissing) {
  send_all(0, ClockDrift());
  EXPECT_EQ(ranks(), (std::vector{0, 1}));
  EXPECT_EQ(missing(), "node2: they did not arrive;");
}

TEST_F(Timelines, KeepWhatHasArrived) {
  send(0, Kind::kClock, encode(ClockDrift()));
  send(0, Kind::kRecords, encode(Records{1, 3, gradients(2)}));
  EXPECT_EQ(ranks(), (std::vector{1}));
  EXPECT_EQ(missing(), "node1: they did not arrive;node2: they did not arrive;");
}

TEST_F(Timelines, AreUselessWithoutTheClock) {
  send(1, Kind::kRecords, encode(Records{2, 2, gradients(2)}));
  send(1, Kind::kRecordsEnd, "its clock could not be compared");
  EXPECT_TRUE(ranks().empty());
  EXPECT_EQ(missing(), "node1: they did not arrive;node2: its clock could not be compared;");
}

TEST_F(Timelines, IgnoreWhatIsNotTheHostsToTell) {
  send_all(1, ClockDrift());
  send(1, Kind::kClock, encode(ClockDrift({0, 5, 0}, {0, 5, 0})));  // after its end
  EXPECT_EQ(timelines_.hosts().clocks[0].clock.start().by, 0);
  send(0, Kind::kClock, encode(ClockDrift()));
  for (const int rank : {2, 3, -1}) send(0, Kind::kRecords, encode(Records{rank, 2, gradients(2)}));
  const std::string whole = encode(Records{0, 2, gradients(2)});
  for (size_t size = 0; size < whole.size(); ++size) send(0, Kind::kRecords, whole.substr(0, size));
  send(0, Kind::kOutput, whole);
  send(7, Kind::kRecords, whole);
  EXPECT_EQ(ranks(), (std::vector{2}));
}

TEST(TimelinesOff, NothingIsAwaited) {
  const std::vector<HostAssignment> assignments{{"node1", 0, 2}};
  EXPECT_TRUE(JobTimelines({}, assignments).complete(0));
}

/// An agent and a coordinator that answers, or does not.
class AgentTimelinesTest : public testing::Test {
 protected:
  AgentTimelinesTest() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
    agent_.emplace(Fd(pair[0]));
    coordinator_.emplace(Fd(pair[1]));
  }

  /// Answers until the agent closes the connection.
  void answer(int64_t behind, JobTimelines& timelines) {
    while (!coordinator_->closed()) {
      for (const Message& message : coordinator_->wait_for_messages(Deadline::after(20s))) {
        if (message.kind == Kind::kTimeQuery) {
          coordinator_->send(Kind::kTimeReply,
                             encode(Time{decode_time(message)->query, timeline::now() - behind}));
          coordinator_->flush(Deadline::after(20s));
        }
        timelines.take(0, message);
      }
    }
  }

  const Options options_ = with_timeline();
  const std::vector<HostAssignment> assignments_{{"node1", 4, 2}};
  JobTimelines timelines_{options_, assignments_};
  std::optional<Connection> agent_, coordinator_;
};

TEST_F(AgentTimelinesTest, ReachTheHeadWithTheClock) {
  std::thread coordinator([this] { answer(kHour, timelines_); });
  const AgentTimelines own(options_, 2, 4, *agent_);
  const Mapping part = own.memory().part(1).value();
  for (size_t index = 0; index < 5000; ++index) timeline::Timeline(part.bytes()).gradient(1, index);
  own.send(Deadline::after(60s));
  agent_->close();
  coordinator.join();
  const std::vector<timeline::Process> all = timelines_.processes();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].rank, 4);
  EXPECT_TRUE(all[0].timeline.records().empty());
  ASSERT_EQ(all[1].timeline.records().size(), 5000U);  // more than one message
  EXPECT_EQ(all[1].timeline.records()[4999].index, 4999U);
  EXPECT_LE(std::abs(all[1].clock.start().by - kHour), all[1].clock.start().within);
  EXPECT_LE(std::abs(all[1].clock.end().by - kHour), all[1].clock.end().within);
  EXPECT_LT(all[1].clock.start().time, all[1].clock.end().time);
  EXPECT_TRUE(timelines_.hosts().missing.empty());
}

TEST_F(AgentTimelinesTest, DoNotWaitForAHeadThatIsGone) {
  coordinator_->close();
  const AgentTimelines own(options_, 2, 4, *agent_);
  own.send(Deadline::after(60s));
  EXPECT_TRUE(agent_->closed());
}

TEST_F(AgentTimelinesTest, SayThatTheCoordinatorIsSilent) {
  const AgentTimelines own(options_, 2, 4, *agent_);  // a second, with its questions unanswered
  own.send(Deadline::after(60s));
  agent_->close();
  answer(0, timelines_);
  ASSERT_EQ(timelines_.hosts().missing.size(), 1U);
  EXPECT_EQ(timelines_.hosts().missing[0].why, "its clock could not be compared");
}

}  // namespace
}  // namespace tarantella::launch
