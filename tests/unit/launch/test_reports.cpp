#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "launch/reports.h"

namespace tarantella::launch {
namespace {

using Kind = Report::Kind;

std::string record(int rank, Kind kind, int code, const std::string& text) {
  const int32_t head[] = {rank, static_cast<int32_t>(kind), code, static_cast<int32_t>(text.size())};
  return std::string(reinterpret_cast<const char*>(head), sizeof head) + text;
}

TEST(Reports, InPieces) {
  ReportReader reader(4);
  const std::string all = record(2, Kind::kMore, 0, "Trace") + record(1, Kind::kNote, 0, "note") +
                          record(2, Kind::kFailed, 3, std::string("back\n\0thread 'a'", 16));
  std::vector<Report> reports;
  for (const char byte : all) {
    for (Report& report : reader.add(std::string_view(&byte, 1))) reports.push_back(std::move(report));
  }
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].kind, Kind::kNote);
  EXPECT_EQ(reports[0].rank, 1);
  EXPECT_EQ(reports[0].text, "note");
  EXPECT_EQ(reports[1].kind, Kind::kFailed);
  EXPECT_EQ(reports[1].code, 3);
  EXPECT_EQ(reports[1].text, "Traceback\n");
  EXPECT_EQ(reports[1].held_by, "thread 'a'");
}

TEST(Reports, NothingAfterWhatIsNoRecord) {
  for (const std::string& wrong : {record(4, Kind::kNote, 0, ""), record(-1, Kind::kNote, 0, ""),
                                   record(1, static_cast<Kind>(9), 0, ""), std::string(100, 'x')}) {
    ReportReader reader(4);
    EXPECT_TRUE(reader.add(wrong).empty());
    EXPECT_TRUE(reader.add(record(1, Kind::kNote, 0, "fine")).empty());
  }
}

TEST(Reports, ThroughThePipe) {
  Result<ReportPipe> pipe = ReportPipe::open();
  ASSERT_TRUE(pipe.ok());
  EXPECT_EQ(pipe.value().read_some(), "");
  ASSERT_EQ(::write(pipe.value().write_fd(), "abc", 3), 3);
  EXPECT_EQ(pipe.value().read_some(), "abc");
  pipe.value().close_write();
  EXPECT_EQ(pipe.value().read_some(), "");
  EXPECT_LT(pipe.value().read_fd(), 0);
}

TEST(Reports, SameErrors) {
  Failures failures;
  failures.add({Kind::kFailed, 0, 1, "ValueError: rank 0 at 0x7f3a", ""});
  failures.add({Kind::kFailed, 1, 1, "ValueError: rank 1 at 0x55d0", ""});
  failures.add({Kind::kFailed, 2, 1, "KeyError: 7", ""});
  failures.add({Kind::kFailed, 3, 1, "KeyError: 8", ""});
  failures.add({Kind::kLost, 4, 86, "PeerLostError", ""});
  EXPECT_TRUE(failures.same(0, 1));
  EXPECT_FALSE(failures.same(2, 3));
  EXPECT_FALSE(failures.same(0, 4));
  EXPECT_EQ(failures.more(1), 1);
  EXPECT_EQ(failures.more(2), 0);
  EXPECT_EQ(failures.more(4), 0);
  ASSERT_NE(failures.find(4, Kind::kLost), nullptr);
  EXPECT_EQ(failures.find(4, Kind::kFailed), nullptr);
}

TEST(Reports, SameErrorsOfAnyLength) {
  std::string spaces;
  for (int pair = 0; pair < 16 * 1024; ++pair) spaces += "_ ";
  const std::string digits(32 * 1024, 'a');
  const auto same = [](const std::string& one, const std::string& other) {
    Failures failures;
    failures.add({Kind::kFailed, 0, 1, one, ""});
    failures.add({Kind::kFailed, 1, 1, other, ""});
    return failures.same(0, 1);
  };
  EXPECT_TRUE(same("digest 0x" + digits, "digest 0x" + digits + "f"));
  EXPECT_FALSE(same("digest " + digits, "digest " + digits + "f"));
  EXPECT_TRUE(same("rank" + spaces + "1", "rank" + spaces + "22"));
  EXPECT_FALSE(same("rank" + spaces + "x", "rank" + spaces + "y"));
}

TEST(Reports, OnlyNumbersOfRanksAreLeftOut) {
  const auto same = [](const std::string& one, const std::string& other) {
    Failures failures;
    failures.add({Kind::kFailed, 0, 1, one, ""});
    failures.add({Kind::kFailed, 1, 1, other, ""});
    return failures.same(0, 1);
  };
  EXPECT_TRUE(same("pid=12, device: 0, thread_3", "pid=9, device: 15, thread_0"));
  EXPECT_TRUE(same("rank 0", "rank 1"));
  EXPECT_TRUE(same("rank rank 0 0x1F.", "rank rank 1 0xab."));
  EXPECT_FALSE(same("rank 0 row 1", "rank 0 row 2"));
  EXPECT_FALSE(same("ranks 1", "ranks 2"));
  EXPECT_FALSE(same("0x", ""));
  EXPECT_FALSE(same("rank", "ran"));
}

}  // namespace
}  // namespace tarantella::launch
