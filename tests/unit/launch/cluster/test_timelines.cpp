#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "launch/cluster/timelines.h"
#include "timeline_on.h"

namespace tarantella::launch {
namespace {

using Kind = Message::Kind;
using timeline::Ahead;
using timeline::Shift;

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
  void tell(size_t node, Kind kind, const std::string& content) { timelines_.take(node, {kind, content}); }
  void send_all(size_t node, const Shift& clock) {
    tell(node, Kind::kClock, content_of(clock));
    for (int rank = shares_[node].first; rank < shares_[node].first + shares_[node].ranks; ++rank) {
      tell(node, Kind::kRecords, content_of(Records{rank, 2, gradients(2)}));
    }
    tell(node, Kind::kRecorded, "");
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
  const std::vector<HostShare> shares_{{"node1", 0, 2}, {"node2", 2, 1}};
  AllTimelines timelines_{options_, shares_};
};

TEST_F(Timelines, AreWholeWhenAllHostsHaveSentThem) {
  EXPECT_FALSE(timelines_.complete(0));
  send_all(1, Shift({0, kHour, 9}, {0, kHour, 9}));
  EXPECT_TRUE(timelines_.complete(1));
  EXPECT_FALSE(timelines_.complete(0));
  send_all(0, Shift());
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
  send_all(0, Shift());
  EXPECT_EQ(ranks(), (std::vector{0, 1}));
  EXPECT_EQ(missing(), "node2: they did not arrive;");
}

TEST_F(Timelines, KeepWhatHasArrived) {
  tell(0, Kind::kClock, content_of(Shift()));
  tell(0, Kind::kRecords, content_of(Records{1, 3, gradients(2)}));
  EXPECT_EQ(ranks(), (std::vector{1}));
  EXPECT_EQ(missing(), "node1: they did not arrive;node2: they did not arrive;");
}

TEST_F(Timelines, AreUselessWithoutTheClock) {
  tell(1, Kind::kRecords, content_of(Records{2, 2, gradients(2)}));
  tell(1, Kind::kRecorded, "its clock could not be compared");
  EXPECT_TRUE(ranks().empty());
  EXPECT_EQ(missing(), "node1: they did not arrive;node2: its clock could not be compared;");
}

TEST_F(Timelines, IgnoreWhatIsNotTheHostsToTell) {
  send_all(1, Shift());
  tell(1, Kind::kClock, content_of(Shift({0, 5, 0}, {0, 5, 0})));  // after its end
  EXPECT_EQ(timelines_.hosts().clocks[0].clock.start().by, 0);
  tell(0, Kind::kClock, content_of(Shift()));
  for (const int rank : {2, 3, -1}) tell(0, Kind::kRecords, content_of(Records{rank, 2, gradients(2)}));
  const std::string whole = content_of(Records{0, 2, gradients(2)});
  for (size_t size = 0; size < whole.size(); ++size) tell(0, Kind::kRecords, whole.substr(0, size));
  tell(0, Kind::kOutput, whole);
  tell(7, Kind::kRecords, whole);
  EXPECT_EQ(ranks(), (std::vector{2}));
}

TEST(TimelinesOff, NothingIsAwaited) {
  const std::vector<HostShare> shares{{"node1", 0, 2}};
  EXPECT_TRUE(AllTimelines({}, shares).complete(0));
}

/// A node launcher and a head that answers, or does not.
class OwnTimelinesTest : public testing::Test {
 protected:
  OwnTimelinesTest() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
    node_.emplace(Fd(pair[0]));
    head_.emplace(Fd(pair[1]));
  }

  /// Answers until the node closes the connection.
  void answer(int64_t behind, AllTimelines& timelines) {
    while (!head_->closed()) {
      for (const Message& message : head_->wait_for_messages(Deadline::after(20s))) {
        if (message.kind == Kind::kAskTime) {
          head_->send(Kind::kTime, content_of(Time{time_in(message)->question, timeline::now() - behind}));
          head_->flush(Deadline::after(20s));
        }
        timelines.take(0, message);
      }
    }
  }

  const Options options_ = with_timeline();
  const std::vector<HostShare> shares_{{"node1", 4, 2}};
  AllTimelines timelines_{options_, shares_};
  std::optional<Connection> node_, head_;
};

TEST_F(OwnTimelinesTest, ReachTheHeadWithTheClock) {
  std::thread head([this] { answer(kHour, timelines_); });
  const OwnTimelines own(options_, 2, 4, *node_);
  const Mapping part = own.memory().part(1).value();
  for (size_t index = 0; index < 5000; ++index) timeline::Timeline(part.bytes()).gradient(1, index);
  own.send(Deadline::after(60s));
  node_->close();
  head.join();
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

TEST_F(OwnTimelinesTest, DoNotWaitForAHeadThatIsGone) {
  head_->close();
  const OwnTimelines own(options_, 2, 4, *node_);
  own.send(Deadline::after(60s));
  EXPECT_TRUE(node_->closed());
}

TEST_F(OwnTimelinesTest, SayThatTheHeadIsSilent) {
  const OwnTimelines own(options_, 2, 4, *node_);  // a second, with its questions unanswered
  own.send(Deadline::after(60s));
  node_->close();
  answer(0, timelines_);
  ASSERT_EQ(timelines_.hosts().missing.size(), 1U);
  EXPECT_EQ(timelines_.hosts().missing[0].why, "its clock could not be compared");
}

}  // namespace
}  // namespace tarantella::launch
