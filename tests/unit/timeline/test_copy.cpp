#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "timeline/copy.h"
#include "timeline/memory.h"
#include "timeline_on.h"

namespace tarantella::timeline {
namespace {

std::string bytes_of(std::span<const Record> records) {
  const auto bytes = std::as_bytes(records);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Copy, HasTheRecordsOfTheOther) {
  TimelineOn on(8);
  for (size_t index = 0; index < 5; ++index) on.timeline().gradient(1, index);
  Copy copy;
  EXPECT_FALSE(copy.begun());
  copy.add(5, bytes_of(on.records().first(3)));
  EXPECT_FALSE(copy.complete());
  copy.add(5, bytes_of(on.records().subspan(3)));
  EXPECT_TRUE(copy.complete());
  const Timeline timeline = copy.timeline();
  EXPECT_EQ(bytes_of(timeline.records()), bytes_of(on.records()));
  EXPECT_EQ(timeline.lost(), 0U);
}

TEST(Copy, OfNoRecordsIsComplete) {
  Copy copy;
  EXPECT_FALSE(copy.complete());
  copy.add(0, "");
  EXPECT_TRUE(copy.complete());
  EXPECT_TRUE(copy.timeline().records().empty());
}

TEST(Copy, WhatHasNotComeIsNotComplete) {
  TimelineOn on(8);
  on.timeline().gradient(1, 7);
  Copy copy;
  copy.add(3, bytes_of(on.records()));
  EXPECT_FALSE(copy.complete());
  const auto records = copy.timeline().records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].index, 7U);
  EXPECT_EQ(records[1].kind.load(), Kind::kNothing);
}

TEST(Copy, IgnoresWhatCannotBe) {
  const std::string one(sizeof(Record), 'x');
  Copy copy;
  copy.add(2, one.substr(1));  // cut
  copy.add(2, one + one + one);
  copy.add(9, one);
  EXPECT_FALSE(copy.complete());
  EXPECT_EQ(copy.timeline().records()[0].kind.load(), Kind::kNothing);
  copy.add(2, one + one);
  copy.add(2, one);
  EXPECT_TRUE(copy.complete());
}

TEST(Copy, CountsWhatWasLostThere) {
  Copy copy;
  copy.add(kRecords + 3, "");
  EXPECT_EQ(copy.timeline().records().size(), kRecords);
  EXPECT_EQ(copy.timeline().lost(), 3U);
}

}  // namespace
}  // namespace tarantella::timeline
