#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "launch/output/reports.h"

namespace tarantella::launch {
namespace {

using Kind = Report::Kind;

std::string record(int rank, Kind kind, int code, const std::string& text) {
  const int32_t head[] = {rank, static_cast<int32_t>(kind), code, static_cast<int32_t>(text.size())};
  return std::string(reinterpret_cast<const char*>(head), sizeof head) + text;
}

TEST(Reports, ArePutTogetherFromPieces) {
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
  EXPECT_EQ(reports[1].blocked_by, "thread 'a'");
}

TEST(Reports, EndAtTheFirstMalformedRecord) {
  for (const std::string& wrong : {record(4, Kind::kNote, 0, ""), record(-1, Kind::kNote, 0, ""),
                                   record(1, static_cast<Kind>(9), 0, ""), std::string(100, 'x')}) {
    ReportReader reader(4);
    EXPECT_TRUE(reader.add(wrong).empty());
    EXPECT_TRUE(reader.add(record(1, Kind::kNote, 0, "fine")).empty());
  }
}

TEST(Reports, AreReadFromThePipeWithoutWaiting) {
  Result<ReportPipe> pipe = ReportPipe::open();
  ASSERT_TRUE(pipe.ok());
  EXPECT_EQ(pipe.value().read_some(), "");
  ASSERT_EQ(::write(pipe.value().write_fd(), "abc", 3), 3);
  EXPECT_EQ(pipe.value().read_some(), "abc");
  pipe.value().close_write();
  EXPECT_EQ(pipe.value().read_some(), "");
  EXPECT_LT(pipe.value().read_fd(), 0);
}

}  // namespace
}  // namespace tarantella::launch
