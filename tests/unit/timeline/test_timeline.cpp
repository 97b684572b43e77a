#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/bucket_times.h"
#include "timeline/memory.h"
#include "timeline_on.h"

namespace tarantella::timeline {
namespace {

TEST(Timeline, KeepsWhatWasRecorded) {
  TimelineOn on(8);
  Timeline& timeline = on.timeline();
  const uint64_t span = timeline.begin_span(Kind::kCall, "fit");
  const int64_t ready = timeline.gradient(3, 7);
  add_bucket(timeline, ready, {ready + 10, ready + 20, ready + 30}, ready + 40);
  timeline.end_span(span);
  const auto records = timeline.records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kind.load(), Kind::kCall);
  EXPECT_EQ(records[0].name_view(), "fit");
  EXPECT_LE(records[0].begin, ready);
  EXPECT_GE(records[0].end.load(), ready);
  EXPECT_EQ(records[1].kind.load(), Kind::kGradient);
  EXPECT_EQ(records[1].plan, 3u);
  EXPECT_EQ(records[1].index, 7u);
  EXPECT_EQ(records[2].parts.summed.load(), ready + 30);
  EXPECT_EQ(timeline.lost(), 0u);
}

TEST(Timeline, CutsLongNames) {
  TimelineOn on(2);
  on.timeline().begin_span(Kind::kPart, std::string(40, 'a') + "end");
  on.timeline().name(Kind::kTensorName, 1, 0, std::string(40, 'a') + "end");
  EXPECT_EQ(on.records()[0].name_view(), std::string(Record::kName, 'a'));
  EXPECT_EQ(on.records()[1].name_view(), std::string(Record::kName - 3, 'a') + "end");
}

TEST(Timeline, KeepsTheFirstRecordsAndCountsTheOthers) {
  TimelineOn on(4);
  for (size_t i = 0; i < 10; ++i) on.timeline().gradient(1, i);
  EXPECT_EQ(on.timeline().begin_span(Kind::kStep, "late"), 0u);
  on.timeline().end_span(0);
  ASSERT_EQ(on.records().size(), 4u);
  EXPECT_EQ(on.records()[3].index, 3u);
  EXPECT_EQ(on.timeline().lost(), 7u);
}

TEST(Timeline, ForgetsADroppedSpan) {
  TimelineOn on(2);
  on.timeline().drop_span(on.timeline().begin_span(Kind::kStep, "the data end here"));
  EXPECT_EQ(on.records()[0].kind.load(), Kind::kNothing);
}

TEST(Timeline, TakesRecordsOfSeveralThreads) {
  constexpr size_t kThreads = 4, kEach = 5000;
  TimelineOn on(kThreads * kEach);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < kEach; ++i) on.timeline().gradient(static_cast<uint32_t>(thread), i);
    });
  }
  size_t complete = 0;  // read meanwhile
  for (const Record& record : on.records()) complete += record.kind.load() == Kind::kGradient ? 1 : 0;
  EXPECT_LE(complete, kThreads * kEach);
  for (auto& each : threads) each.join();
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const Record& record : on.records()) {
    ASSERT_EQ(record.kind.load(), Kind::kGradient);
    seen.emplace(record.plan, record.index);
  }
  EXPECT_EQ(seen.size(), kThreads * kEach);
}

TEST(Timeline, SpansAreRecordedOnlyWhileItIsOn) {
  {
    const Span off(Kind::kPart, "off");
  }
  TimelineOn on(4);
  {
    const Span span(Kind::kPart, "on");
  }
  ASSERT_EQ(on.records().size(), 1u);
  EXPECT_EQ(on.records()[0].name_view(), "on");
  EXPECT_NE(on.records()[0].end.load(), 0);
}

TEST(Timeline, RanksShareTheMemoryOfTheirLauncher) {
  const auto memory = Memory::make(2);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  ::setenv(Memory::kVariable, std::to_string(memory.value().fd()).c_str(), 1);
  {
    auto part = Memory::inherited(1, 2);
    ASSERT_TRUE(part.has_value());
    Timeline(part->bytes()).gradient(1, 42);
  }
  EXPECT_FALSE(Memory::inherited(1, 3).has_value()) << "the memory of another job";
  ::setenv(Memory::kVariable, "1000000", 1);
  EXPECT_FALSE(Memory::inherited(1, 2).has_value());
  ::unsetenv(Memory::kVariable);
  EXPECT_FALSE(Memory::inherited(1, 2).has_value());
  const auto read = memory.value().part(1);
  ASSERT_TRUE(read.ok());
  const Timeline timeline(read.value().bytes());
  ASSERT_EQ(timeline.records().size(), 1u);
  EXPECT_EQ(timeline.records()[0].index, 42u);
}

// docs/timeline.md states the nanoseconds, which this prints. They are compared with the clock's, since no time holds
// on every machine. A sanitizer makes the two slower by different factors: its builds have no such test.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr size_t kChunks = 1000, kEach = 1000;

/// Nanoseconds of one call of `body`: the best of many chunks, in which nobody else ran.
template <typename Body>
double nanoseconds(Body body) {
  double best = INFINITY;
  for (size_t chunk = 0; chunk < kChunks; ++chunk) {
    const int64_t begin = now();
    for (size_t i = 0; i < kEach; ++i) body(i);
    best = std::min(best, static_cast<double>(now() - begin) / kEach);
  }
  return best;
}

/// Nanoseconds of one of the records that `record` makes.
template <typename Record>
double nanoseconds_of_record(Record record) {
  TimelineOn on(kChunks * kEach);
  const double each = nanoseconds([&](size_t i) { record(on.timeline(), i); });
  EXPECT_EQ(on.timeline().lost(), 0u);
  EXPECT_EQ(on.records().size(), kChunks * kEach);
  return each;
}

TEST(Timeline, ARecordTakesAtMostFiveReadingsOfTheClock) {
  int64_t sum = 0;
  const double clock = nanoseconds([&sum](size_t) { sum += now(); });
  EXPECT_NE(sum, 0);
  engine::BucketTimes times;
  const std::pair<const char*, double> each[] = {
      {"a gradient", nanoseconds_of_record([](Timeline& timeline, size_t i) { timeline.gradient(1, i); })},
      {"a batch", nanoseconds_of_record([](Timeline& timeline, size_t) { timeline.batch(32); })},
      {"a span",
       nanoseconds_of_record([](Timeline&, size_t) { const Span span(Kind::kStep, "train step"); })},
      {"a bucket", nanoseconds_of_record([&times](Timeline& timeline, size_t i) {
                     times.begin(timeline, 1, i, 1);
                     times.filled();
                     times.summed(2);
                     times.end(false);
                   }) / 2},  // it is written at four times
  };
  std::printf("the clock %.0f ns\n", clock);
  for (const auto& [what, took] : each) {
    std::printf("%s %.0f ns\n", what, took);
    EXPECT_LT(took, std::max(100.0, 5 * clock)) << what;
  }
}
#endif

}  // namespace
}  // namespace tarantella::timeline
