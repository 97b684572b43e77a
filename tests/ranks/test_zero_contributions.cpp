#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "engine/zero_contributions.h"
#include "world.h"

namespace tarantella::engine {
namespace {

/// Those of different types share no bucket.
const std::vector<TensorSpec> kTensors = {{"a", DType::kFloat32, {3}},
                                          {"unused", DType::kInt64, {40}},
                                          {"empty", DType::kInt32, {0}},
                                          {"b", DType::kFloat32, {700}}};
const std::vector<size_t> kUsed = {3, 2, 0};

float value(int rank, int step) { return static_cast<float>(10 * rank + step + 1); }

/// Submits the tensors that are used, and returns the first element of the last sum.
float run_step(Plan& plan, int rank, int step) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t open = kUsed.size();
  float sum = 0;
  const std::vector<float> data(700, value(rank, step));
  for (const size_t i : kUsed) {
    const auto done = [&, i](const Status& status, const void* result) {
      EXPECT_TRUE(status.ok()) << status.message();
      const std::lock_guard lock(mutex);
      if (status.ok() && i == 0) sum = static_cast<const float*>(result)[2];
      --open;
      changed.notify_all();
    };
    const Status status = plan.submit(i, data.data(), kTensors[i].count(), kTensors[i].dtype, done);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) done(status, nullptr);
  }
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return open == 0; }));
  return sum;
}

std::vector<uint64_t> most(Context& context, std::vector<uint64_t> steps) {
  const Status status = context.call([&](collective::Communicator& comm) {
    return comm.allreduce(steps.data(), steps.data(), steps.size(), DType::kInt64, Reduction::kMax, "");
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return steps;
}

using ZerosOnRanks = OnRanks;

TEST_P(ZerosOnRanks, AreZerosInTheSumsOfTheOthers) {
  for (const size_t threshold : {size_t{0}, size_t{256}, size_t{1} << 20}) {
    world_.run([&](Context& context) {
      const int rank = context.rank();
      const auto plan = context.add_plan("gradients", kTensors, threshold);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      for (int epoch = 0; epoch < 3; ++epoch) {
        const auto steps_of = [&](int of) { return 3 * ((of + epoch) % world_.size()); };
        for (int step = 0; step < steps_of(rank); ++step) {
          float expected = 0;
          for (int each = 0; each < world_.size(); ++each)
            expected += step < steps_of(each) ? value(each, step) : 0;
          ASSERT_EQ(run_step(*plan.value(), rank, step), expected)
              << "step " << step << " of epoch " << epoch;
        }
        ZeroContributions zeros(plan.value());
        ASSERT_TRUE(context.call([](auto& comm) { return comm.barrier(""); }).ok());
        const auto steps = most(context, zeros.stop());
        ASSERT_TRUE(zeros.finish(steps).ok());
        EXPECT_GE(steps[0], zeros.before()[0]);
        EXPECT_EQ(most(context, {plan.value()->completed_generations(0)})[0], steps[0]);
      }
    });
  }
}

TEST_P(ZerosOnRanks, EndTogetherWhereARankHasStoppedWithinABucket) {
  world_.run([&](Context& context) {
    const std::vector<TensorSpec> pair = {{"a", DType::kFloat32, {3}}, {"b", DType::kFloat32, {700}}};
    const auto plan = context.add_plan("gradients", pair, size_t{1} << 20);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (int round = 0; round < 300; ++round) {  // the thread that submits is anywhere when it is stopped
      ZeroContributions zeros(plan.value());
      for (int turn = 0; turn < round % 10; ++turn) std::this_thread::yield();
      const auto steps = zeros.stop();
      ASSERT_EQ(steps[0], steps[1]) << "round " << round;
      const Status status = zeros.finish(most(context, steps));
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
}

TEST_P(ZerosOnRanks, EndWithTheirPlan) {
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", kTensors, 256);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ZeroContributions zeros(plan.value());
    auto steps = zeros.stop();
    context.remove_plan(plan.value());
    for (uint64_t& each : steps) each += 2;
    EXPECT_EQ(zeros.finish(steps).code(), Code::kInvalidArgument);
  });
}

TEST_P(ZerosOnRanks, EndTheJobIfTheyAreRefused) {
  if (world_.size() < 2) GTEST_SKIP();
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", kTensors, size_t{1} << 20);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const std::array<float, 3> data{};
    std::unique_ptr<ZeroContributions> zeros;
    if (context.rank() == 0) {  // the bucket waits for "b"
      ASSERT_TRUE(plan.value()->submit(0, data.data(), 3, DType::kFloat32, {}).ok());
      zeros = std::make_unique<ZeroContributions>(plan.value());
    }
    Status status;
    for (const Deadline limit = Deadline::after(20s); status.ok() && !limit.passed();)
      status = context.call([](auto& comm) { return comm.barrier(""); });
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("rank 0: the gradient of \"a\""), std::string::npos) << status.message();
  });
}

TEST_P(ZerosOnRanks, EndWithTheJob) {
  if (world_.size() < 2) GTEST_SKIP();
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", kTensors, 256);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    if (context.rank() == 1) {
      std::this_thread::sleep_for(20ms);
      return plan.value()->abort("no gradients here");
    }
    ZeroContributions zeros(plan.value());
    auto steps = zeros.stop();
    for (uint64_t& each : steps) each += 2;
    const Status status = zeros.finish(steps);
    EXPECT_NE(status.message().find("rank 1: no gradients here"), std::string::npos) << status.message();
  });
}

TNT_ON_RANKS(ZerosOnRanks, 1, 2, 3, 4);
TNT_SPINNING(ZerosOnRanks, 2, 3);

}  // namespace
}  // namespace tarantella::engine
