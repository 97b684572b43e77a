#include <gtest/gtest.h>

#include "engine/trace.h"

namespace tarantella::engine {
namespace {

TEST(Trace, KeepsTheNewestInOrder) {
  Trace trace;
  for (size_t i = 0; i < Trace::kCapacity + 10; ++i) trace.add(Event::kSubmit, i);
  const auto records = trace.snapshot();
  ASSERT_EQ(records.size(), Trace::kCapacity);
  EXPECT_EQ(records.front().index, 10u);
  EXPECT_EQ(records.back().index, Trace::kCapacity + 9);
  for (size_t i = 1; i < records.size(); ++i) EXPECT_LE(records[i - 1].nanoseconds, records[i].nanoseconds);
}

}  // namespace
}  // namespace tarantella::engine
