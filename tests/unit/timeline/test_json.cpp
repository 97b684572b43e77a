#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "job_name.h"
#include "timeline/json.h"
#include "timeline_on.h"

namespace tarantella::timeline {
namespace {

class Json : public testing::Test {
 protected:
  Json() { std::filesystem::create_directory(folder_); }
  ~Json() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  static std::string read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  std::string written(Timeline& timeline) const {
    const Status status = write_json(path("t.json"), {{3, "host", timeline}});
    EXPECT_TRUE(status.ok()) << status.message();
    return read(path("t.json"));
  }

  const std::string folder_ = std::filesystem::temp_directory_path() / new_job_name();
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Json, NamesTheRankAndItsTracks) {
  TimelineOn on(16);
  on.timeline().mark(now());
  on.timeline().name(Kind::kPlanName, 1, 0, "the gradients");
  on.timeline().bucket_size(1, 0, 640);
  on.timeline().name(Kind::kTensorName, 1, 2, "dense/\"kernel\"\xC3\xBC\xFF");
  on.timeline().gradient(1, 2);
  const std::string text = written(on.timeline());
  EXPECT_TRUE(has(text, R"("args":{"name":"rank 3 on host"}})")) << text;
  EXPECT_TRUE(has(text, R"("args":{"name":"the gradients: bucket 0"}})")) << text;
  EXPECT_TRUE(has(text, "{\"ph\":\"i\",\"name\":\"dense/\\\"kernel\\\"\xC3\xBC?\",\"pid\":3")) << text;
  EXPECT_EQ(files(), 1u);
}

TEST_F(Json, CountsTimeInMicrosecondsFromTheOrigin) {
  TimelineOn on(4);
  on.timeline().mark(1'000'000);
  add_bucket(on.timeline(), 1'002'005, {1'003'000, 1'004'000, 1'005'000}, 1'009'000);
  const std::string text = written(on.timeline());
  EXPECT_TRUE(has(text, R"("cat":"bucket","ts":2.005,"dur":6.995)")) << text;
  EXPECT_TRUE(has(text, R"("name":"fill","pid":3,"tid":1000001,"cat":"fill","ts":2.005,"dur":0.995)"))
      << text;
  EXPECT_TRUE(has(text, R"("cat":"sum","ts":4.000,"dur":1.000)")) << text;
  EXPECT_FALSE(has(text, "failed")) << text;
}

TEST_F(Json, ShowsBatchesOnATrackOfTheirOwn) {
  TimelineOn on(4);
  on.timeline().mark(1000);
  EXPECT_FALSE(has(written(on.timeline()), "batches"));
  on.timeline().batch(32);
  const std::string text = written(on.timeline());
  EXPECT_TRUE(has(text, R"({"ph":"M","name":"thread_name","pid":3,"tid":0,"args":{"name":"batches"}})"))
      << text;
  EXPECT_TRUE(has(text, R"({"ph":"i","name":"batch","pid":3,"tid":0,"cat":"batch","s":"t","ts":)")) << text;
  EXPECT_TRUE(has(text, R"("args":{"rows":32}})")) << text;
}

TEST_F(Json, ShowsABatchThatIsAwaitedAsASlice) {
  TimelineOn on(4);
  on.timeline().mark(1000);
  on.timeline().begin_span(Kind::kStep, "train step");
  on.timeline().batch(32);
  on.timeline().batch(16);  // of the same step
  const std::string text = written(on.timeline());
  EXPECT_TRUE(has(text, R"({"ph":"X","name":"await batch","pid":3,"tid":0,"cat":"batch","ts":)")) << text;
  EXPECT_TRUE(has(text, R"({"ph":"i","name":"batch","pid":3,"tid":0,"cat":"batch","s":"t","ts":)")) << text;
}

TEST_F(Json, EndsAnOpenSpanWithTheOneAroundIt) {
  TimelineOn on(4);
  on.timeline().mark(now());
  const uint64_t call = on.timeline().begin_span(Kind::kCall, "fit");
  on.timeline().begin_span(Kind::kPart, "epoch 1");
  on.timeline().end_span(call);
  on.timeline().gradient(1, 0);
  const std::string text = written(on.timeline());
  const auto end_of = [&](const char* name) {
    const size_t at = text.find(name);
    const double begin = std::stod(text.substr(text.find("\"ts\":", at) + 5));
    return begin + std::stod(text.substr(text.find("\"dur\":", at) + 6));
  };
  EXPECT_NEAR(end_of("\"fit\""), end_of("\"epoch 1\""), 0.002);
  EXPECT_TRUE(has(text, R"("ended":false)")) << text;
}

TEST_F(Json, ShowsABucketOfAFailedJobUpToItsFailure) {
  TimelineOn on(4);
  add_bucket(on.timeline(), 1000, {3000, 0, 0}, 9000, true);
  const std::string text = written(on.timeline());
  EXPECT_TRUE(has(text, R"("failed":true)")) << text;
  EXPECT_TRUE(has(text, R"("cat":"wait","ts":3.000,"dur":6.000)")) << text;
  EXPECT_FALSE(has(text, R"("cat":"sum")")) << text;
}

TEST_F(Json, ShowsABucketThatHasNotEndedUpToTheLastRecord) {
  TimelineOn on(4);
  on.timeline().begin_bucket(1, 0, 1000)->parts.full = 3000;
  on.timeline().begin_bucket(1, 1, 8000);
  const std::string text = written(on.timeline());
  EXPECT_TRUE(has(text, R"("ts":1.000,"dur":7.000,"args":{"bytes":0,"ended":false})")) << text;
  EXPECT_TRUE(has(text, R"("cat":"wait","ts":3.000,"dur":5.000)")) << text;
}

TEST_F(Json, ShowsTheTimesOfAnotherClockOnThatOfTheFile) {
  TimelineOn here(4), there(4);
  here.timeline().mark(1'000'000);
  there.timeline().mark(1'000'000);
  add_bucket(here.timeline(), 1'002'000, {1'003'000, 1'004'000, 1'005'000}, 1'009'000);
  add_bucket(there.timeline(), 2'000, {3'000, 4'000, 5'000}, 9'000);  // 1 ms behind
  const ClockDrift clock({0, -1'000'000, 10}, {5'000, -1'000'000, 10});
  ASSERT_TRUE(
      write_json(path("t.json"), {{0, "a", here.timeline()}, {1, "b", there.timeline(), clock}}).ok());
  const std::string text = read(path("t.json"));
  for (const char* pid : {"0", "1"}) {
    const std::string head = std::string(R"("name":"bucket 0","pid":)") + pid;
    EXPECT_TRUE(has(text, head + R"(,"tid":1000001,"cat":"bucket","ts":2.000,"dur":7.000)")) << text;
  }
}

TEST_F(Json, KeepsSpansTogetherWhileTheClocksDriftApart) {
  TimelineOn on(4);
  add_bucket(on.timeline(), 1'000'000, {2'000'000, 3'000'000, 4'000'000}, 5'000'000);
  const ClockDrift clock({1'000'000, 0, 0}, {5'000'000, 400'000, 0});
  ASSERT_TRUE(write_json(path("t.json"), {{0, "a", on.timeline(), clock}}).ok());
  const std::string text = read(path("t.json"));
  EXPECT_TRUE(has(text, R"("cat":"bucket","ts":1000.000,"dur":3600.000)")) << text;
  EXPECT_TRUE(has(text, R"("cat":"fill","ts":1000.000,"dur":900.000)")) << text;
  EXPECT_TRUE(has(text, R"("cat":"sum","ts":2800.000,"dur":900.000)")) << text;
}

TEST_F(Json, StatesTheClocksBehindTheEvents) {
  TimelineOn on(4);
  on.timeline().mark(7'000'001);
  const ClockDrift clock({0, -1'500, 200}, {9, -1'400, 100});
  const Hosts hosts{{{"a\"", clock}}, {{"b", "they did not arrive"}}};
  ASSERT_TRUE(write_json(path("t.json"), {{0, "a", on.timeline()}}, hosts).ok());
  const std::string text = read(path("t.json"));
  EXPECT_TRUE(
      text.ends_with("],\n\"otherData\":{\"origin_us\":7000.001,\"clocks\":[\n"
                     R"({"host":"a\"","ahead_us":-1.500,"ahead_at_end_us":-1.400,"within_us":0.200}],)"
                     "\"missing\":[\n{\"host\":\"b\",\"why\":\"they did not arrive\"}],\"lost\":[]}}\n"))
      << text;
}

TEST_F(Json, SaysWhatIsMissing) {
  TimelineOn on(2);
  EXPECT_EQ(lost_records({{0, "host", on.timeline()}}), "");
  for (size_t i = 0; i < 3; ++i) on.timeline().gradient(1, i);
  EXPECT_EQ(lost_records({{4, "host", on.timeline()}}),
            "the timeline keeps the first 2 events of a rank; the later ones of rank 4 are missing");
  const std::string text = written(on.timeline());
  EXPECT_TRUE(text.ends_with("\"lost\":[\n{\"rank\":3,\"records\":1}]}}\n")) << text;
}

TEST_F(Json, RefusesAFileThatCannotBeWritten) {
  EXPECT_TRUE(check_file(path("new.json")).ok());
  EXPECT_TRUE(check_file("in_this_folder.json").ok());
  EXPECT_TRUE(check_file("/dev/null").ok());
  EXPECT_EQ(check_file(folder_).message(), "cannot write the timeline '" + folder_ + "': Is a directory");
  EXPECT_EQ(check_file(path("no/t.json")).message(),
            "cannot write the timeline '" + path("no/t.json") + "': No such file or directory");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(has(check_file(path("pipe")).message(), "is not a file"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(Json, LeavesNothingBehindOnAFullDisk) {
  TimelineOn on(4);
  EXPECT_EQ(write_json("/dev/full", {{0, "host", on.timeline()}}).message(),
            "cannot write the timeline '/dev/full': No space left on device");
  EXPECT_FALSE(write_json(path("no/t.json"), {{0, "host", on.timeline()}}).ok());
  std::filesystem::create_directory(path("t.json"));  // since the check
  EXPECT_FALSE(write_json(path("t.json/"), {{0, "host", on.timeline()}}).ok());
  EXPECT_EQ(files(), 1u);
}

TEST_F(Json, ReplacesTheFileAsAWhole) {
  std::ofstream(path("t.json")) << std::string(100'000, 'x');
  TimelineOn on(4);
  const std::string text = written(on.timeline());
  EXPECT_FALSE(has(text, "xxx"));
  EXPECT_TRUE(text.ends_with("\"lost\":[]}}\n"));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace tarantella::timeline
