#include <gtest/gtest.h>

#include "launch/cluster/message.h"

namespace tarantella::launch {
namespace {

TEST(Message, ArrivesWholeFromBytesInAnyPieces) {
  const std::string bytes = framed(Message::Kind::kOutput, "line\n") + framed(Message::Kind::kEnd, "");
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    MessageReader reader;
    std::vector<Message> all;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      for (Message& message : reader.add(bytes.substr(at, piece))) all.push_back(std::move(message));
    }
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].kind, Message::Kind::kOutput);
    EXPECT_EQ(all[0].content, "line\n");
    EXPECT_EQ(all[1].kind, Message::Kind::kEnd);
    EXPECT_FALSE(reader.broken());
  }
}

TEST(Message, NothingIsReadBehindAMalformedFrame) {
  for (const std::string& head :
       {std::string("\x63\0\0\0\0\0\0\0", 8), std::string("\0\0\0\0\xff\xff\xff\xff", 8)}) {
    MessageReader reader;
    EXPECT_TRUE(reader.add(head + framed(Message::Kind::kEnd, "")).empty());
    EXPECT_TRUE(reader.broken());
    EXPECT_TRUE(reader.add(framed(Message::Kind::kEnd, "")).empty());
  }
}

TEST(Message, ContentsComeBack) {
  const JobOrder order{.job_id = "id",
                       .transport = "mpi-abi:/lib",
                       .folder = "/folder with blanks",
                       .command = {"/python", {"/python", "-u", "train.py"}},
                       .heeds_user_signals = true,
                       .chosen = true,
                       .shares = {{"a", 0, 2}, {"b", 2, 1}},
                       .words = {"-n", ""},
                       .environment = {"A=b\nc"}};
  const auto found = order_in({Message::Kind::kJob, content_of(order)});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->job_id, "id");
  EXPECT_EQ(found->folder, "/folder with blanks");
  EXPECT_TRUE(found->heeds_user_signals);
  EXPECT_TRUE(found->chosen);
  EXPECT_EQ(found->shares, order.shares);
  EXPECT_EQ(found->command.program, order.command.program);
  EXPECT_EQ(found->command.words, order.command.words);
  EXPECT_EQ(found->words, order.words);
  EXPECT_EQ(found->environment, order.environment);
  const auto hello = hello_in({Message::Kind::kHello, content_of(Hello{"1", "h", 3})});
  EXPECT_EQ(hello->node, 3);
  const auto verdict =
      verdict_in({Message::Kind::kVerdict, content_of(Verdict{.code = 137, .words = "w\n"})});
  EXPECT_EQ(verdict->code, 137);
  EXPECT_EQ(verdict->words, "w\n");
  const auto event = signal_in({Message::Kind::kSignal, content_of(Signals::Event{15, true})});
  EXPECT_TRUE(event->from_terminal);
  const std::vector<std::string> warnings{"no GPU", ""};
  EXPECT_EQ(warnings_in({Message::Kind::kReady, content_of(warnings)}), warnings);
  EXPECT_EQ(states_in({Message::Kind::kAttendance, content_of(std::vector{0, 1, 139})}),
            (std::vector{0, 1, 139}));
  const auto time = time_in({Message::Kind::kTime, content_of(Time{3, int64_t{1} << 40})});
  EXPECT_EQ(time->question, 3);
  EXPECT_EQ(time->shown, int64_t{1} << 40);
  const auto clock = clock_in({Message::Kind::kClock, content_of(timeline::Shift({1, -2, 3}, {4, 5, 6}))});
  EXPECT_EQ(clock->start().by, -2);
  EXPECT_EQ(clock->end().within, 6);
  const auto records =
      records_in({Message::Kind::kRecords, content_of(Records{1, 2, std::string("\0r", 2)})});
  EXPECT_EQ(records->rank, 1);
  EXPECT_EQ(records->made, 2);
  EXPECT_EQ(records->bytes, std::string("\0r", 2));
}

TEST(Message, CutContentsAreRefused) {
  const std::string whole =
      content_of(JobOrder{"id", "t", "/", {"p", {}}, false, false, {{"a", 0, 2}}, {"w"}, {"A=b"}});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(order_in({Message::Kind::kJob, whole.substr(0, size)}).has_value());
  }
  EXPECT_FALSE(order_in({Message::Kind::kJob, whole + "x"}).has_value());
  EXPECT_FALSE(order_in({Message::Kind::kGo, whole}).has_value());
}

TEST(Message, TimesThatNoClockShowsAreRefused) {
  const timeline::Ahead never{INT64_MAX, 0, 0};
  EXPECT_FALSE(clock_in({Message::Kind::kClock, content_of(timeline::Shift(never, never))}).has_value());
  EXPECT_FALSE(time_in({Message::Kind::kTime, content_of(Time{0, INT64_MIN})}).has_value());
  EXPECT_FALSE(records_in({Message::Kind::kRecords, content_of(Records{0, -1, ""})}).has_value());
}

}  // namespace
}  // namespace tarantella::launch
