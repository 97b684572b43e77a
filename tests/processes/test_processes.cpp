// From 2 to 64 ranks as processes of the core alone, each with a random schedule: its delays, the order in which it
// submits tensors, its calls in between. A failed check ends its rank with an exit code other than 0.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "run_processes.h"
#include "tarantella/tarantella.h"

namespace {

using tarantella::require;
using tarantella::run_processes;

/// Waits until all tensors of a step are done.
class Step {
 public:
  explicit Step(size_t tensors) : open_(tensors) {}
  static void done(void* step, tnt_code code, const char* message, const void*) {
    require(code == TNT_OK, message);
    auto* self = static_cast<Step*>(step);
    const std::lock_guard lock(self->mutex_);
    if (--self->open_ == 0) self->changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t open_;
};

constexpr std::array<int64_t, 6> kLengths = {1, 700, 0, 33, 5000, 64};

class Trainer {
 public:
  explicit Trainer(tnt_context* context)
      : context_(context), rank_(tnt_context_rank(context)), size_(tnt_context_size(context)) {
    std::vector<tnt_tensor> tensors;
    for (const int64_t& length : kLengths) tensors.push_back({"w", TNT_FLOAT64, &length, 1});
    require(tnt_plan_create(context, "p", tensors.data(), tensors.size(), 2048, TNT_HOST, 0,
                            TNT_CHECK_STEPS_ON_NODE, &plan_) == TNT_OK,
            "plan");
  }

  /// One step in which tensors are submitted in `order`; checks a number of each sum.
  void step(int number, const std::vector<size_t>& order) {
    struct Sums {
      Step all{kLengths.size()};
      std::array<const double*, kLengths.size()> found{};
    } sums;
    struct Target {
      Sums* sums;
      size_t tensor;
    };
    std::array<Target, kLengths.size()> targets{};
    std::array<std::vector<double>, kLengths.size()> gradients;
    for (const size_t tensor : order) {
      targets[tensor] = {&sums, tensor};
      std::vector<double>& gradient = gradients[tensor];
      gradient.assign(static_cast<size_t>(kLengths[tensor]), value(rank_, number, tensor));
      const auto done = [](void* user, tnt_code code, const char* message, const void* result) {
        auto* target = static_cast<Target*>(user);
        target->sums->found[target->tensor] = static_cast<const double*>(result);
        Step::done(&target->sums->all, code, message, result);
      };
      require(tnt_plan_submit(plan_, tensor, gradient.data(), gradient.size(), TNT_FLOAT64, 0, nullptr, done,
                              nullptr, &targets[tensor]) == TNT_OK,
              "submit");
    }
    sums.all.wait();
    for (size_t tensor = 0; tensor < kLengths.size(); ++tensor) {
      double right = 0;
      for (int rank = 0; rank < size_; ++rank) right += value(rank, number, tensor);
      for (int64_t i = 0; i < kLengths[tensor]; ++i)
        require(sums.found[tensor][i] == right, "a sum of step " + std::to_string(number));
    }
  }

  /// A blocking call between two steps.
  void call(int number, uint32_t kind) {
    int64_t sum = rank_ + number;
    std::vector<int32_t> all(static_cast<size_t>(size_));
    const std::vector<uint64_t> counts(static_cast<size_t>(size_), 1);
    if (kind == 0) {
      require(tnt_allreduce(context_, &sum, &sum, 1, TNT_INT64, TNT_MAX, "c", nullptr, nullptr, nullptr) ==
                  TNT_OK,
              "allreduce");
      require(sum == number + size_ - 1, "a maximum");
    } else if (kind == 1) {
      const int32_t own = rank_ * number;
      require(tnt_allgather(context_, &own, all.data(), counts.data(), TNT_INT32, "g", nullptr) == TNT_OK,
              "allgather");
      require(all.back() == (size_ - 1) * number, "what was gathered");
    } else {
      require(tnt_barrier(context_, "b") == TNT_OK, "barrier");
    }
  }

 private:
  static double value(int rank, int number, size_t tensor) {
    return (rank + 1) * 3 + number + static_cast<int>(tensor);
  }

  tnt_context* const context_;
  const int rank_;
  const int size_;
  tnt_plan plan_ = 0;
};

/// Random delays of a rank: mostly short, sometimes long, rarely very long.
void be_late(std::mt19937& random) {
  const auto draw = random() % 64;
  if (draw == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
  if (draw < 8) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
  if (draw < 16) std::this_thread::yield();
}

void random_schedule(tnt_context* context, int steps) {
  Trainer trainer(context);
  std::mt19937 own(static_cast<uint32_t>(tnt_context_rank(context)) + 1);
  std::mt19937 common(99);  // the blocking calls are the same everywhere
  std::vector<size_t> order(kLengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int number = 0; number < steps; ++number) {
    be_late(own);
    std::shuffle(order.begin(), order.end(), own);
    trainer.step(number, order);
    if (common() % 4 == 0) trainer.call(number, static_cast<uint32_t>(common() % 3));
  }
}

class Processes : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Processes, TakeRandomSchedules) {
  const auto [size, steps] = GetParam();
  EXPECT_TRUE(run_processes(size, [steps](int, tnt_context* context) { random_schedule(context, steps); }));
}

// Sanitizers make a step some twenty times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTwo = 200, kThree = 100, kFive = 60;
#else
constexpr int kTwo = 2000, kThree = 500, kFive = 200;
#endif

INSTANTIATE_TEST_SUITE_P(Sizes, Processes,
                         testing::Values(std::tuple{2, kTwo}, std::tuple{3, kThree}, std::tuple{5, kFive},
                                         std::tuple{9, 100}, std::tuple{16, 30}, std::tuple{64, 4}));

TEST(ProcessesThatFork, GoOnWhereAChildComesAndGoesInTheMiddleOfAStep) {
  EXPECT_TRUE(run_processes(2, [](int rank, tnt_context* context) {
    std::thread forks([rank] {
      for (int i = 0; i < 20; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {  // as a data worker that lives for a while, holding all that it has inherited
          std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
          ::_exit(7);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child");
      }
    });
    random_schedule(context, 200);
    forks.join();
  }));
}

TEST(ProcessesThatFork, RefuseTheirChildrenInTheMiddleOfAStep) {
  EXPECT_TRUE(run_processes(2, [](int rank, tnt_context* context) {
    const int64_t length = 10;
    const tnt_tensor tensors[] = {{"a", TNT_FLOAT32, &length, 1}, {"b", TNT_FLOAT32, &length, 1}};
    tnt_plan plan = 0;
    require(tnt_plan_create(context, "p", tensors, 2, 1 << 20, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan) ==
                TNT_OK,
            "plan");
    const std::vector<float> ones(10, 1.0F);
    Step both(2);
    require(tnt_plan_submit(plan, 0, ones.data(), 10, TNT_FLOAT32, 0, nullptr, Step::done, nullptr, &both) ==
                TNT_OK,
            "submit");
    if (rank == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        const bool refused = tnt_plan_submit(plan, 1, ones.data(), 10, TNT_FLOAT32, 0, nullptr, Step::done,
                                             nullptr, &both) == TNT_INVALID_ARGUMENT &&
                             tnt_barrier(context, "") == TNT_INVALID_ARGUMENT;
        ::_exit(refused ? 7 : 1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      require(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child was not refused");
    }
    require(tnt_plan_submit(plan, 1, ones.data(), 10, TNT_FLOAT32, 0, nullptr, Step::done, nullptr, &both) ==
                TNT_OK,
            "submit");
    both.wait();
    require(tnt_barrier(context, "end") == TNT_OK, "barrier");
  }));
}

TEST(ProcessesWithTooLittleMemory, SaySoAndGoOn) {
  EXPECT_TRUE(run_processes(2, [](int, tnt_context* context) {
    const int64_t terabytes = int64_t{1} << 40;
    const tnt_tensor tensor = {"w", TNT_FLOAT32, &terabytes, 1};
    tnt_plan plan = 0;
    require(tnt_plan_create(context, "huge", &tensor, 1, 0, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE, &plan) ==
                TNT_OUT_OF_MEMORY,
            "a plan of 12 TiB");
    random_schedule(context, 5);
  }));
}

}  // namespace
