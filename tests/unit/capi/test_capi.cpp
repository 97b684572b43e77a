#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "job_name.h"
#include "tarantella/tarantella.h"

namespace {

tnt_options options_of(const std::string& job, int rank, int size) {
  return {rank, size, job.c_str(), 30, 60, 0, 1, 0, nullptr, nullptr, nullptr};
}

tnt_context* connect(const std::string& job, int rank, int size) {
  const tnt_options options = options_of(job, rank, size);
  tnt_context* context = nullptr;
  EXPECT_EQ(tnt_context_create(&options, &context), TNT_OK) << tnt_last_error();
  return context;
}

void count_down(void* user, tnt_code code, const char*, const void* result) {
  EXPECT_EQ(code, TNT_OK);
  EXPECT_EQ(static_cast<const float*>(result)[0], 2.0F);
  static_cast<std::atomic<int>*>(user)->fetch_sub(1);
}

TEST(CInterface, SumsBetweenProcesses) {
  const std::string job = tarantella::new_job_name();
  std::vector<pid_t> children;
  constexpr int kSize = 4;
  for (int rank = 1; rank < kSize; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      tnt_context* context = connect(job, rank, kSize);
      std::vector<double> data(200'000, rank);
      const bool right = tnt_allreduce(context, data.data(), data.data(), data.size(), TNT_FLOAT64, TNT_SUM,
                                       "x", nullptr, nullptr, nullptr) == TNT_OK &&
                         data.back() == 6;
      tnt_context_destroy(context);
      ::_exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  tnt_context* context = connect(job, 0, kSize);
  std::vector<double> data(200'000, 0);
  EXPECT_EQ(tnt_allreduce(context, data.data(), data.data(), data.size(), TNT_FLOAT64, TNT_SUM, "x", nullptr,
                          nullptr, nullptr),
            TNT_OK)
      << tnt_last_error();
  EXPECT_EQ(data.front(), 6);
  tnt_context_destroy(context);
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

/// Runs life(rank, context) on one thread a rank.
template <typename Life>
void on_ranks(int size, Life life) {
  const std::string job = tarantella::new_job_name();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      tnt_context* context = connect(job, rank, size);
      life(rank, context);
      tnt_context_destroy(context);
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(CInterface, GroupsCommunicateOnTheirOwn) {
  on_ranks(4, [](int rank, tnt_context* context) {
    const std::vector<int> odd = {3, 1};
    tnt_context* group = nullptr;
    ASSERT_EQ(tnt_context_create_group(context, odd.data(), odd.size(), &group), TNT_OK) << tnt_last_error();
    ASSERT_EQ(group != nullptr, rank % 2 == 1);
    EXPECT_EQ(tnt_context_rank(group), rank == 3 ? 0 : rank == 1 ? 1 : -1);
    if (group != nullptr) {
      EXPECT_EQ(tnt_context_size(group), 2);
      int32_t value = rank;  // the others are not there
      EXPECT_EQ(tnt_allreduce(group, &value, &value, 1, TNT_INT32, TNT_SUM, "", nullptr, nullptr, nullptr),
                TNT_OK)
          << tnt_last_error();
      EXPECT_EQ(value, 4);
    }
    EXPECT_EQ(tnt_barrier(context, ""), TNT_OK) << tnt_last_error();
    tnt_context_destroy(group);
  });
}

/// One gather of rows of two floats and an int64, as a caller that waits for it.
class Gathering {
 public:
  explicit Gathering(uint64_t rows, uint64_t first) : rows_(rows) {
    for (uint64_t i = 0; i < 2 * rows; ++i) floats_.push_back(static_cast<float>(first + i / 2));
    for (uint64_t i = 0; i < 2 * rows; ++i) integers_.push_back(static_cast<int64_t>(2 * first + i));
  }

  tnt_code start(uint64_t context, uint32_t number = 0, tnt_dtype dtype = TNT_FLOAT32) {
    const std::array<int64_t, 1> two = {2};
    const std::array<tnt_tensor, 2> parts = {tnt_tensor{"a", dtype, two.data(), 1},
                                             tnt_tensor{"b", TNT_INT64, nullptr, 0}};
    const std::array<const void*, 2> inputs = {floats_.data(), integers_.data()};
    const std::array<uint64_t, 2> rows = {rows_, 2 * rows_};  // of b, twice as many
    return tnt_allgather_rows(context, "a loss", parts.data(), inputs.data(), rows.data(), 2, number,
                              allocate, done, this);
  }
  tnt_code wait() {
    ended_.wait(false);
    return code_;
  }
  const std::string& message() const { return message_; }
  const std::vector<float>& floats() const { return all_floats_; }
  const std::vector<int64_t>& integers() const { return all_integers_; }
  bool has_memory = true;

 private:
  static int allocate(void* user, const uint64_t* rows, void** outputs) {
    auto& self = *static_cast<Gathering*>(user);
    self.all_floats_.resize(2 * (rows[0] + rows[2]));
    self.all_integers_.resize(rows[1] + rows[3]);
    outputs[0] = self.all_floats_.data();
    outputs[1] = self.all_integers_.data();
    return self.has_memory ? 1 : 0;
  }
  static void done(void* user, tnt_code code, const char* message, const void* result) {
    auto& self = *static_cast<Gathering*>(user);
    EXPECT_EQ(result, nullptr);
    self.code_ = code;
    self.message_ = message;
    self.ended_ = true;
    self.ended_.notify_all();
  }

  const uint64_t rows_;
  std::vector<float> floats_, all_floats_;
  std::vector<int64_t> integers_, all_integers_;
  tnt_code code_ = TNT_OK;
  std::string message_;
  std::atomic<bool> ended_{false};
};

TEST(CInterface, GathersRowsInOrderWhileTheCallerGoesOn) {
  on_ranks(2, [](int rank, tnt_context* context) {
    const uint64_t number = tnt_context_number(context);
    for (const uint64_t others : {3, 1, 0}) {  // rows of rank 1; rank 0 has 2
      Gathering one(rank == 0 ? 2 : others, rank == 0 ? 0 : 2);
      Gathering next(rank == 0 ? 2 : others, rank == 0 ? 0 : 2);
      ASSERT_EQ(one.start(number, 5), TNT_OK) << tnt_last_error();
      ASSERT_EQ(next.start(number, 5), TNT_OK) << tnt_last_error();
      EXPECT_EQ(next.wait(), TNT_OK) << next.message();
      EXPECT_EQ(one.wait(), TNT_OK) << one.message();
      std::vector<int64_t> wanted(2 * (2 + others));
      std::iota(wanted.begin(), wanted.end(), 0);
      EXPECT_EQ(one.integers(), wanted);
      EXPECT_EQ(next.integers(), wanted);
      ASSERT_EQ(one.floats().size(), wanted.size());
      for (size_t i = 0; i < one.floats().size(); ++i) EXPECT_EQ(one.floats()[i], static_cast<float>(i / 2));
    }
  });
}

TEST(CInterface, SumsRowsWhileTheCallerGoesOn) {
  on_ranks(2, [](int rank, tnt_context* context) {
    const std::vector<float> own(6, static_cast<float>(rank + 1));
    std::vector<float> sums(6);
    const std::array<int64_t, 1> two = {2};
    const tnt_tensor part{"a", TNT_FLOAT32, two.data(), 1};
    const void* const input = own.data();
    void* const output = sums.data();
    const uint64_t rows = 3;
    std::atomic<bool> ended{false};
    const auto done = [](void* user, tnt_code code, const char* message, const void*) {
      EXPECT_EQ(code, TNT_OK) << message;
      static_cast<std::atomic<bool>*>(user)->store(true);
      static_cast<std::atomic<bool>*>(user)->notify_all();
    };
    ASSERT_EQ(tnt_sum_rows(tnt_context_number(context), "a", &part, &input, &output, &rows, 1, 1, done,
                           nullptr, &ended),
              TNT_OK)
        << tnt_last_error();
    ended.wait(false);
    EXPECT_EQ(sums, std::vector<float>(6, 3));
  });
}

TEST(CInterface, GathersOfOtherRowsOrStepsEnd) {
  on_ranks(2, [](int rank, tnt_context* context) {
    Gathering gathering(2, 0);
    ASSERT_EQ(gathering.start(tnt_context_number(context), rank == 0 ? 7 : 8), TNT_OK);
    EXPECT_EQ(gathering.wait(), TNT_MISMATCH);
    EXPECT_NE(gathering.message().find("the rows of a loss in training step 7, rank 1 in step 8"),
              std::string::npos)
        << gathering.message();
  });
  on_ranks(2, [](int rank, tnt_context* context) {
    Gathering gathering(2, 0);
    ASSERT_EQ(gathering.start(tnt_context_number(context), 0, rank == 0 ? TNT_FLOAT32 : TNT_INT32), TNT_OK);
    EXPECT_EQ(gathering.wait(), TNT_MISMATCH);
    EXPECT_NE(
        gathering.message().find("rank 0 gathers a float32 [rows, 2] for a loss, rank 1 a int32 [rows, 2]"),
        std::string::npos)
        << gathering.message();
    EXPECT_EQ(tnt_failure(context), TNT_MISMATCH);
  });
}

TEST(CInterface, AGatherWithoutMemoryEndsTheJob) {
  on_ranks(2, [](int rank, tnt_context* context) {
    Gathering gathering(2, 0);
    gathering.has_memory = rank == 0;
    ASSERT_EQ(gathering.start(tnt_context_number(context)), TNT_OK);
    EXPECT_NE(gathering.wait(), TNT_OK);
    EXPECT_NE(gathering.message().find("no memory for the rows of all ranks of a loss"), std::string::npos)
        << gathering.message();
  });
}

TEST(CInterface, AGatherEndsWithItsContext) {
  on_ranks(2, [](int rank, tnt_context* context) {
    const uint64_t number = tnt_context_number(context);
    Gathering gathering(2, 0);
    if (rank == 0) {  // the other never comes
      ASSERT_EQ(gathering.start(number), TNT_OK);
      tnt_context_close(context);
      EXPECT_EQ(gathering.wait(), TNT_PEER_LOST) << gathering.message();
      EXPECT_EQ(gathering.start(number), TNT_PEER_LOST);
    }
    EXPECT_EQ(gathering.start(number + 1000), TNT_INVALID_ARGUMENT);
  });
}

/// What this process holds of the machine.
struct Held {
  size_t files = 0;
  size_t threads = 0;
  size_t mappings = 0;
  size_t bytes = 0;  ///< of shared memory

  static Held now() {
    const auto entries = [](const char* folder) {
      const std::filesystem::directory_iterator found(folder);
      return static_cast<size_t>(std::distance(begin(found), end(found)));
    };
    Held held{entries("/proc/self/fd"), entries("/proc/self/task"), 0, 0};
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:tarantella") != std::string::npos) ++held.mappings;
    }
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto file = std::filesystem::read_symlink(entry.path(), gone).string();
      struct stat found{};
      if (file.find("memfd:tarantella") != std::string::npos && ::stat(entry.path().c_str(), &found) == 0)
        held.bytes += static_cast<size_t>(found.st_blocks) * 512;
    }
    return held;
  }
};

TEST(CInterface, GroupsMadeInALoopDoNotPileUp) {
  on_ranks(2, [](int rank, tnt_context* context) {
    const std::vector<int> both = {1, 0};
    Held first;
    for (int i = 0; i < 300; ++i) {
      tnt_context* group = nullptr;
      ASSERT_EQ(tnt_context_create_group(context, both.data(), both.size(), &group), TNT_OK)
          << tnt_last_error();
      int32_t value = rank;
      ASSERT_EQ(tnt_allreduce(group, &value, &value, 1, TNT_INT32, TNT_SUM, "", nullptr, nullptr, nullptr),
                TNT_OK)
          << tnt_last_error();
      ASSERT_EQ(value, 1);
      tnt_context_destroy(group);  // the other may still be in its call
      ASSERT_EQ(tnt_barrier(context, ""), TNT_OK) << tnt_last_error();
      if (i == 9) first = Held::now();
      // none makes the next while one counts
      ASSERT_EQ(tnt_barrier(context, ""), TNT_OK);
    }
    const Held last = Held::now();
    EXPECT_LE(last.files, first.files + 2);      // another rank may hold a folder open just now
    EXPECT_LE(last.threads, first.threads + 2);  // one that was joined may still be on its way
    EXPECT_LE(last.mappings, first.mappings + 4);
    EXPECT_LT(last.bytes, first.bytes + (4 << 20));
    ASSERT_EQ(tnt_barrier(context, ""), TNT_OK);
  });
}

TEST(CInterface, CarriesEveryCollective) {
  on_ranks(2, [](int rank, tnt_context* context) {
    const std::vector<uint64_t> counts = {1, 2};
    const std::vector<int64_t> own(counts[static_cast<size_t>(rank)], rank + 5);
    std::vector<int64_t> all(3);
    EXPECT_EQ(tnt_allgather(context, own.data(), all.data(), counts.data(), TNT_INT64, "", nullptr), TNT_OK);
    EXPECT_EQ(all, (std::vector<int64_t>{5, 6, 6}));
    const double four[] = {1, 2, 3, 4};
    double two[] = {0, 0};
    EXPECT_EQ(tnt_reduce_scatter(context, four, two, 2, TNT_FLOAT64, TNT_AVERAGE, "", nullptr), TNT_OK);
    EXPECT_EQ(two[1], four[2 * rank + 1]);
    const std::vector<uint64_t> send = rank == 0 ? std::vector<uint64_t>{0, 2} : std::vector<uint64_t>{1, 0};
    const std::vector<uint64_t> receive =
        rank == 0 ? std::vector<uint64_t>{0, 1} : std::vector<uint64_t>{2, 0};
    int64_t got[] = {0, 0};
    EXPECT_EQ(tnt_alltoall(context, all.data(), send.data(), got, receive.data(), TNT_INT64, "", nullptr),
              TNT_OK)
        << tnt_last_error();
    EXPECT_EQ(got[0], 5);
    EXPECT_EQ(got[1], rank == 0 ? 0 : 6);
  });
}

TEST(CInterface, RunsAPlan) {
  const std::string job = tarantella::new_job_name();
  const auto rank = [&](int number) {
    tnt_context* context = connect(job, number, 2);
    const int64_t shape[] = {3};
    const tnt_tensor tensors[] = {{"a", TNT_FLOAT32, shape, 1}, {"scalar", TNT_FLOAT32, nullptr, 0}};
    tnt_plan plan = 0;
    ASSERT_EQ(tnt_plan_create(context, "p", tensors, 2, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
              TNT_OK)
        << tnt_last_error();
    const std::vector<float> ones(3, 1.0F);
    std::atomic<int> open{2};
    ASSERT_EQ(tnt_plan_submit(plan, 0, ones.data(), 3, TNT_FLOAT32, 0, nullptr, count_down, nullptr, &open),
              TNT_OK);
    ASSERT_EQ(tnt_plan_submit(plan, 1, ones.data(), 1, TNT_FLOAT32, 0, nullptr, count_down, nullptr, &open),
              TNT_OK);
    while (open.load() != 0) std::this_thread::yield();
    ASSERT_EQ(tnt_barrier(context, ""), TNT_OK);
    ASSERT_EQ(tnt_plan_release(plan), TNT_OK);
    EXPECT_EQ(tnt_plan_release(plan), TNT_INVALID_ARGUMENT);
    EXPECT_EQ(tnt_plan_submit(plan, 0, ones.data(), 3, TNT_FLOAT32, 0, nullptr, count_down, nullptr, &open),
              TNT_INVALID_ARGUMENT);
    tnt_context_destroy(context);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

/// In a child: the timeline stays on once it is.
TEST(CInterface, TheTimelineShowsSpansAndCallsOfTheProcessThatStartedIt) {
  const std::string file = std::filesystem::temp_directory_path() / (tarantella::new_job_name() + ".json");
  const pid_t child = ::fork();
  if (child == 0) {
    uint64_t lost = 1;
    bool right = tnt_timeline_begin(TNT_SPAN_CALL, "too early") == 0 &&
                 tnt_timeline_write(file.c_str(), 0, &lost) == TNT_INVALID_ARGUMENT &&
                 tnt_timeline_start(0, 1) == TNT_OK && tnt_timeline_start(0, 1) == TNT_OK;
    tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
    const uint64_t span = tnt_timeline_begin(TNT_SPAN_CALL, "fit");
    right = right && span != 0 && tnt_barrier(context, "everyone") == TNT_OK;
    tnt_timeline_end(span, 0);
    tnt_timeline_end(tnt_timeline_begin(TNT_SPAN_STEP, "forgotten"), 1);
    tnt_context_destroy(context);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) ::_exit(tnt_timeline_begin(TNT_SPAN_CALL, "of a child") == 0 ? 0 : 1);
    int status = 1;
    ::waitpid(grandchild, &status, 0);
    right = right && status == 0 && tnt_timeline_write(file.c_str(), 0, &lost) == TNT_OK && lost == 0;
    ::_exit(right ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::ostringstream read;
  read << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  EXPECT_NE(read.str().find("\"name\":\"fit\""), std::string::npos) << read.str();
  EXPECT_NE(read.str().find("\"name\":\"everyone\""), std::string::npos) << read.str();
  EXPECT_EQ(read.str().find("forgotten"), std::string::npos) << read.str();
  EXPECT_EQ(read.str().find("too early"), std::string::npos) << read.str();
}

TEST(CInterface, SeveralContextsLiveInOneProcess) {
  tnt_context* first = connect(tarantella::new_job_name(), 0, 1);
  tnt_context* second = connect(tarantella::new_job_name(), 0, 1);
  float value = 3;
  EXPECT_EQ(tnt_allreduce(first, &value, &value, 1, TNT_FLOAT32, TNT_SUM, "", nullptr, nullptr, nullptr),
            TNT_OK);
  tnt_context_destroy(first);
  EXPECT_EQ(tnt_barrier(second, ""), TNT_OK);
  tnt_context_destroy(second);
}

TEST(CInterface, AForkedChildIsRefusedAndDoesNotHarmItsParent) {
  tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
  const tnt_tensor scalar = {"scalar", TNT_FLOAT32, nullptr, 0};
  tnt_plan plan = 0;
  ASSERT_EQ(tnt_plan_create(context, "p", &scalar, 1, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
            TNT_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    const float value = 1000;
    const bool refused = tnt_barrier(context, "") == TNT_INVALID_ARGUMENT &&
                         tnt_plan_submit(plan, 0, &value, 1, TNT_FLOAT32, 0, nullptr, nullptr, nullptr,
                                         nullptr) == TNT_INVALID_ARGUMENT &&
                         tnt_plan_release(plan) == TNT_INVALID_ARGUMENT;
    tnt_context_destroy(context);
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(tnt_barrier(context, ""), TNT_OK);
  tnt_context_destroy(context);
}

TEST(CInterface, ARankThatFailsTellsTheOthersAtOnce) {
  const std::string job = tarantella::new_job_name();
  std::thread other([&] {
    tnt_context* context = connect(job, 1, 2);
    EXPECT_EQ(tnt_abort(context, "ValueError: the cause", 3), TNT_OK);
    tnt_context_destroy(context);
  });
  tnt_context* context = connect(job, 0, 2);
  EXPECT_EQ(tnt_barrier(context, ""), TNT_PEER_LOST);
  EXPECT_STREQ(tnt_last_error(), "rank 1 failed: ValueError: the cause");
  EXPECT_EQ(tnt_abort(context, "KeyError", 1), TNT_OK);
  EXPECT_EQ(tnt_failure(context), TNT_PEER_LOST);
  EXPECT_STREQ(tnt_last_error(), "rank 1 failed: ValueError: the cause");
  EXPECT_EQ(tnt_exit_code(context), 3);
  other.join();
  tnt_context_destroy(context);
}

TEST(CInterface, RefusesBadArgumentsWithOneLine) {
  tnt_context* context = nullptr;
  const auto refused = [&](const tnt_options& options) {
    EXPECT_EQ(tnt_context_create(&options, &context), TNT_INVALID_ARGUMENT);
    EXPECT_STRNE(tnt_last_error(), "");
    EXPECT_EQ(std::string(tnt_last_error()).find('\n'), std::string::npos);
  };
  refused({0, 0, "job", 1, 60, 0, 1, 0, nullptr, nullptr, nullptr});
  refused({2, 2, "job", 1, 60, 0, 1, 0, nullptr, nullptr, nullptr});
  refused({0, 1, nullptr, 1, 60, 0, 1, 0, nullptr, nullptr, nullptr});
  refused({0, 1, "job", 0, 60, 0, 1, 0, nullptr, nullptr, nullptr});
  refused({0, 1, "job", 1, 0.5, 0, 1, 0, nullptr, nullptr, nullptr});
  refused({0, 1, "job", 1, 60, -1, 1, 0, nullptr, nullptr, nullptr});
  for (const char* nodes : {"1,2", "2,0", "1,1,", ",2", "a,1", "-1,3", "1 ,1", "99999999999,1"}) {
    refused({0, 2, "job", 1, 60, 0, 1, 0, nodes, nullptr, nullptr});
    EXPECT_TRUE(std::string(tnt_last_error()).starts_with("TNT_NODES must have")) << tnt_last_error();
  }
  EXPECT_EQ(tnt_context_create(nullptr, &context), TNT_INVALID_ARGUMENT);
  EXPECT_EQ(tnt_barrier(nullptr, ""), TNT_INVALID_ARGUMENT);
  EXPECT_EQ(tnt_plan_release(123456), TNT_INVALID_ARGUMENT);
  tnt_context_destroy(nullptr);
}

TEST(CInterface, ATensorThatIsNotFiniteFailsTheJobWhereItIsAskedFor) {
  tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
  const int64_t shape[] = {1500};
  const tnt_tensor tensors[] = {{"kernel", TNT_FLOAT32, shape, 1}, {"half", TNT_BFLOAT16, shape, 1}};
  tnt_plan plan = 0;
  ASSERT_EQ(tnt_plan_create(context, "p", tensors, 2, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
            TNT_OK);
  std::vector<float> values(1500, 3e38F), sums(1500);
  std::vector<uint16_t> halves(1500, 0x7f7f), half_sums(1500);
  const void* const inputs[] = {values.data(), halves.data()};
  void* const outputs[] = {sums.data(), half_sums.data()};
  const auto run = [&] { return tnt_plan_run(plan, inputs, nullptr, outputs, 2, 0, nullptr); };
  halves[7] = 0xff80;  // -infinity
  EXPECT_EQ(run(), TNT_OK);
  halves[7] = 0;
  EXPECT_EQ(tnt_plan_check_finite(plan), TNT_OK);
  EXPECT_EQ(run(), TNT_OK);
  values[1499] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run(), TNT_SYSTEM);
  EXPECT_TRUE(
      std::string(tnt_last_error())
          .starts_with("rank 0: the gradient of \"kernel\" float32 [1500] is not finite in step 3 of p"))
      << tnt_last_error();
  EXPECT_EQ(tnt_barrier(context, ""), TNT_SYSTEM);
  tnt_context_destroy(context);
}

TEST(CInterface, RefusesImpossibleShapes) {
  tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
  tnt_plan plan = 0;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{-16}, {int64_t{1} << 62, 4}, {3, -1}}) {
    const tnt_tensor tensor = {"w", TNT_FLOAT32, shape.data(), shape.size()};
    EXPECT_EQ(tnt_plan_create(context, "p", &tensor, 1, 1 << 20, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
              TNT_INVALID_ARGUMENT);
  }
  tnt_context_destroy(context);
}

TEST(CInterface, RefusesPlansWhoseSumOverflows) {
  tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
  const int64_t each = int64_t{1} << 47;  // of 2^49 bytes; all of them, twice, are 2^64
  const std::vector<tnt_tensor> tensors(16384, {"w", TNT_FLOAT32, &each, 1});
  tnt_plan plan = 0;
  EXPECT_EQ(tnt_plan_create(context, "p", tensors.data(), tensors.size(), 0, TNT_HOST, 0,
                            TNT_CHECK_STEPS_ON_NODE, &plan),
            TNT_INVALID_ARGUMENT);
  EXPECT_EQ(tnt_barrier(context, ""), TNT_OK);
  tnt_context_destroy(context);
}

TEST(CInterface, DestroyingAContextEndsTheCallsOfOtherThreads) {
  on_ranks(2, [](int rank, tnt_context* context) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<int> both = {0, 1};
      tnt_context* group = nullptr;
      ASSERT_EQ(tnt_context_create_group(context, both.data(), both.size(), &group), TNT_OK)
          << tnt_last_error();
      const tnt_tensor scalar = {"scalar", TNT_FLOAT32, nullptr, 0};
      tnt_plan plan = 0;
      ASSERT_EQ(tnt_plan_create(group, "p", &scalar, 1, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
                TNT_OK)
          << tnt_last_error();
      if (rank == 0) {
        std::atomic<int> inside{0};
        const auto lost = [&](tnt_code code) {
          EXPECT_EQ(code, TNT_PEER_LOST);
          EXPECT_STREQ(tnt_last_error(), "this rank has closed its context");
        };
        std::vector<std::thread> threads;
        threads.emplace_back([&] { lost((++inside, tnt_barrier(group, "never"))); });
        threads.emplace_back([&] { lost((++inside, tnt_barrier(group, "behind it"))); });
        threads.emplace_back([&] {
          float value = 1;
          const void* input = &value;
          void* output = &value;
          lost((++inside, tnt_plan_run(plan, &input, nullptr, &output, 1, 0, nullptr)));
        });
        while (inside != 3) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        tnt_context_destroy(group);
        for (auto& thread : threads) thread.join();
      }
      ASSERT_EQ(tnt_barrier(context, ""), TNT_OK) << tnt_last_error();
      if (rank == 1) tnt_context_destroy(group);
    }
  });
}

TEST(CInterface, APlanMayBeReleasedWhileItsContextIsDestroyed) {
  for (int round = 0; round < 200; ++round) {
    tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
    const tnt_tensor scalar = {"scalar", TNT_FLOAT32, nullptr, 0};
    tnt_plan plan = 0;
    ASSERT_EQ(tnt_plan_create(context, "p", &scalar, 1, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
              TNT_OK);
    std::thread other([&] { (void)tnt_plan_release(plan); });
    tnt_context_destroy(context);
    other.join();
  }
}

TEST(CInterface, APlanTakesTensorsInHostMemoryOnly) {
  tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
  const tnt_tensor scalar = {"scalar", TNT_FLOAT32, nullptr, 0};
  tnt_plan plan = 0;
  EXPECT_EQ(tnt_plan_create(context, "p", &scalar, 1, 0, TNT_CUDA, 2, TNT_CHECK_STEPS_ON_NODE, &plan),
            TNT_UNSUPPORTED);
  EXPECT_NE(std::string(tnt_last_error()).find("in host memory only, not on device 2"), std::string::npos)
      << tnt_last_error();
  ASSERT_EQ(tnt_plan_create(context, "p", &scalar, 1, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
            TNT_OK);
  float value = 1;
  const void* input = &value;
  void* output = &value;
  int stream = 0;
  EXPECT_EQ(tnt_plan_submit(plan, 0, &value, 1, TNT_FLOAT32, 0, &stream, nullptr, nullptr, nullptr),
            TNT_UNSUPPORTED);
  EXPECT_EQ(tnt_plan_run(plan, &input, nullptr, &output, 1, 0, &stream), TNT_UNSUPPORTED);
  EXPECT_NE(std::string(tnt_last_error()).find("no backend for devices"), std::string::npos)
      << tnt_last_error();
  EXPECT_EQ(tnt_allreduce(context, &value, &value, 1, TNT_FLOAT32, TNT_SUM, "", &stream, nullptr, nullptr),
            TNT_UNSUPPORTED);
  EXPECT_EQ(tnt_broadcast(context, &value, 1, TNT_FLOAT32, 0, "", &stream), TNT_UNSUPPORTED);
  EXPECT_EQ(tnt_plan_run(plan, &input, nullptr, &output, 1, 0, nullptr), TNT_OK);
  tnt_context_destroy(context);
}

TEST(CInterface, LetsGoOfMemoryOnceWhateverACallReturns) {
  tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
  const tnt_tensor scalar = {"scalar", TNT_FLOAT32, nullptr, 0};
  tnt_plan plan = 0;
  ASSERT_EQ(tnt_plan_create(context, "p", &scalar, 1, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
            TNT_OK);
  struct Calls {
    std::atomic<int> done{0}, released{0}, released_first{0};
  } calls;
  const auto done = [](void* user, tnt_code, const char*, const void*) { ++static_cast<Calls*>(user)->done; };
  const auto released = [](void* user) {
    auto& of = *static_cast<Calls*>(user);
    if (++of.released > of.done) ++of.released_first;
  };
  float value = 1;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_EQ(tnt_plan_submit(plan, 0, &value, 1, TNT_FLOAT32, 0, nullptr, done, released, &calls), TNT_OK);
    while (calls.released != step) std::this_thread::yield();
  }
  EXPECT_EQ(calls.released_first, 0);
  for (const auto& [number, index] : {std::pair{plan, size_t{9}}, std::pair{plan + 99, size_t{0}}}) {
    calls.released = 0;
    EXPECT_EQ(tnt_plan_submit(number, index, &value, 1, TNT_FLOAT32, 0, nullptr, done, released, &calls),
              TNT_INVALID_ARGUMENT);
    EXPECT_EQ(calls.released, 1);
  }
  for (const tnt_reduction reduction : {TNT_SUM, TNT_AND}) {  // floats have no AND
    calls.released = 0;
    (void)tnt_allreduce(context, &value, &value, 1, TNT_FLOAT32, reduction, "", nullptr, released, &calls);
    EXPECT_EQ(calls.released, 1);
  }
  tnt_context_destroy(context);
}

TEST(CInterface, ZerosTakeThePlaceOfAPlansTensors) {
  on_ranks(2, [](int rank, tnt_context* context) {
    const std::vector<tnt_tensor> tensors(2, {"scalar", TNT_FLOAT32, nullptr, 0});
    tnt_plan plan = 0;
    ASSERT_EQ(
        tnt_plan_create(context, "p", tensors.data(), 2, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
        TNT_OK)
        << tnt_last_error();
    std::vector<float> values = {2, 3};
    const std::vector<const void*> inputs = {&values[0], &values[1]};
    const std::vector<void*> outputs = {&values[0], &values[1]};
    std::vector<uint64_t> steps = {9, 9};
    tnt_zero_contributions* zeros = nullptr;
    if (rank == 1) {
      ASSERT_EQ(tnt_zero_contributions_begin(plan, 1, steps.data(), &zeros), TNT_INVALID_ARGUMENT);
      ASSERT_EQ(tnt_zero_contributions_begin(plan, 2, steps.data(), &zeros), TNT_OK) << tnt_last_error();
      EXPECT_EQ(steps, (std::vector<uint64_t>{0, 0}));
    } else {
      for (int step = 0; step < 3; ++step) {
        ASSERT_EQ(tnt_plan_run(plan, inputs.data(), nullptr, outputs.data(), 2, 0, nullptr), TNT_OK)
            << tnt_last_error();
      }
      EXPECT_EQ(values, (std::vector<float>{2, 3}));
      ASSERT_EQ(tnt_zero_contributions_begin(plan, 2, steps.data(), &zeros), TNT_OK) << tnt_last_error();
      EXPECT_EQ(steps, (std::vector<uint64_t>{3, 3}));
    }
    ASSERT_EQ(tnt_barrier(context, ""), TNT_OK) << tnt_last_error();
    ASSERT_EQ(tnt_zero_contributions_stop(zeros, steps.data()), TNT_OK);
    ASSERT_EQ(tnt_allreduce(context, steps.data(), steps.data(), 2, TNT_INT64, TNT_MAX, "", nullptr, nullptr,
                            nullptr),
              TNT_OK);
    ASSERT_EQ(tnt_zero_contributions_finish(zeros, steps.data()), TNT_OK) << tnt_last_error();
    tnt_zero_contributions_release(zeros);
    values = {1, 2};
    ASSERT_EQ(tnt_plan_run(plan, inputs.data(), nullptr, outputs.data(), 2, 0, nullptr), TNT_OK)
        << tnt_last_error();
    EXPECT_EQ(values, (std::vector<float>{2, 4}));
  });
  EXPECT_EQ(tnt_zero_contributions_stop(nullptr, nullptr), TNT_INVALID_ARGUMENT);
  EXPECT_EQ(tnt_zero_contributions_finish(nullptr, nullptr), TNT_INVALID_ARGUMENT);
  tnt_zero_contributions_release(nullptr);
}

TEST(CInterface, APlanNeedsTensors) {
  tnt_context* context = connect(tarantella::new_job_name(), 0, 1);
  tnt_plan plan = 0;
  EXPECT_EQ(tnt_plan_create(context, "empty", nullptr, 0, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan),
            TNT_INVALID_ARGUMENT);
  tnt_context_destroy(context);
}

}  // namespace
