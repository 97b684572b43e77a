#include <gtest/gtest.h>

#include <cerrno>

#include "base/status.h"

namespace tarantella {
namespace {

Status passes_on(const Status& status) {
  TNT_RETURN_IF_ERROR(status);
  return {Code::kSystem, "went on"};
}

TEST(Status, IsOkByDefault) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().message(), "");
}

TEST(Status, NamesTheSystemsError) {
  const Status status = Status::system("mmap of 5 bytes", ENOMEM);
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_NE(status.message().find("mmap of 5 bytes: Cannot allocate memory"), std::string::npos)
      << status.message();
}

TEST(Status, ReturnsEarlyOnError) {
  EXPECT_EQ(passes_on({Code::kTimeout, "late"}).message(), "late");
  EXPECT_EQ(passes_on({}).message(), "went on");
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<int> value(3);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value.value(), 3);
  EXPECT_TRUE(value.status().ok());
  const Result<int> error(Status(Code::kTimeout, "late"));
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), Code::kTimeout);
}

TEST(Text, JoinsWhatCanBePrinted) { EXPECT_EQ(text("rank ", 3, " of ", 2.5, '!'), "rank 3 of 2.5!"); }

}  // namespace
}  // namespace tarantella
