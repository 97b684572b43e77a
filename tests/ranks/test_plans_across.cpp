// Plans of jobs on several nodes: sums and their bits, buckets of all sizes, disagreements and ends of nodes, over a
// network that delays and reorders.

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>

#include "cluster.h"
#include "collective/across/nodes_reduction.h"
#include "collective/kernels.h"
#include "collective/node_reduction.h"
#include "cpu_time.h"
#include "engine/plan.h"
#include "engine/zero_steps.h"
#include "made_data.h"

namespace tarantella::engine {
namespace {

using collective::across::Across;
using Values = std::vector<float>;

Values gradient(int rank, int step, size_t tensor, size_t count) {
  return made_floats(static_cast<uint32_t>(rank * 1009 + step * 31 + static_cast<int>(tensor)), count);
}

/// The sums of the nodes, each in rank order, in the order of nodes.
Values sum(const collective::across::Nodes& nodes, int step, size_t tensor, size_t count) {
  Values total;
  for (size_t node = 0; node < nodes.count(); ++node) {
    Values part;
    for (const int rank : nodes.ranks_of(node)) add(part, gradient(rank, step, tensor, count));
    add(total, std::move(part));
  }
  return total;
}

/// Submits all tensors of a step and waits for their sums.
class Step {
 public:
  /// With `zeros` nothing is handed in, which stands for zeros.
  Step(const std::vector<TensorSpec>& specs, int rank, int number, bool zeros = false)
      : open_(specs.size()), number_(number), zeros_(zeros) {
    for (size_t tensor = 0; tensor < specs.size(); ++tensor)
      gradients_.push_back(gradient(rank, number, tensor, specs[tensor].count()));
  }
  Status submit(Plan& plan, size_t tensor, const Values* right,
                collective::Kept kept = collective::Kept::kUntilDone) {
    const Values& data = gradients_[tensor];
    return plan.submit(
        tensor, zeros_ ? nullptr : data.data(), data.size(), DType::kFloat32,
        [this, right, bytes = data.size() * sizeof(float)](const Status& status, const void* result) {
          if (status.ok() && right != nullptr && bytes != 0) {
            EXPECT_EQ(std::memcmp(result, right->data(), bytes), 0) << "step " << number_;
          }
          const std::lock_guard lock(mutex_);
          if (!status.ok()) status_ = status;
          --open_;
          changed_.notify_all();
        },
        kept, zeros_ ? 0 : static_cast<uint32_t>(number_ + 1));
  }
  std::span<const std::byte> memory(size_t tensor) const {
    return std::as_bytes(std::span(gradients_[tensor]));
  }
  Status wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return open_ == 0; }))
      return {Code::kTimeout, "test"};
    return status_;
  }

 private:
  std::vector<Values> gradients_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t open_;
  const int number_;
  const bool zeros_;
  Status status_;
};

std::vector<TensorSpec> tensors_of(const std::vector<int64_t>& counts) {
  std::vector<TensorSpec> specs;
  for (const int64_t count : counts) specs.push_back({text("t", specs.size()), DType::kFloat32, {count}});
  return specs;
}

// The largest is one that two nodes exchange in parts.
const std::vector<int64_t> kCounts = {100, 7, 0, 5000, 1, 70'000, 333, 16'384, 12, 270'000};

/// The layout, and whether ranks have cores of their own.
class PlansAcross : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  const std::vector<int>& node_of() const { return kLayouts.at(std::get<0>(GetParam())); }
  bool own_cores() const { return std::get<1>(GetParam()); }
};

TEST_P(PlansAcross, SumsHaveTheBitsOfTheLayoutInEveryStepAndOrder) {
  const auto specs = tensors_of(kCounts);
  for (const size_t threshold : {size_t{0}, size_t{4096}, size_t{100'000}}) {
    FakeCluster cluster(node_of(), threshold + 1, 20, own_cores());
    constexpr int kSteps = 4;
    std::vector<std::vector<Values>> right(kSteps);
    for (int step = 0; step < kSteps; ++step) {
      for (size_t tensor = 0; tensor < specs.size(); ++tensor)
        right[static_cast<size_t>(step)].push_back(sum(cluster.nodes(), step, tensor, specs[tensor].count()));
    }
    cluster.run([&](Cluster& rank) {
      auto plan =
          rank.add_plan("gradients", specs, threshold, threshold != 0 ? Numbers::kOfSteps : Numbers::kNone);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      std::mt19937 random(static_cast<uint32_t>(rank.rank()));
      std::vector<size_t> order(specs.size());
      std::iota(order.begin(), order.end(), 0);
      for (int number = 0; number < kSteps; ++number) {
        std::shuffle(order.begin(), order.end(), random);
        Step step(specs, rank.rank(), number);
        for (const size_t tensor : order) {
          // some nodes send from the caller's memory what others copy
          const bool lends = (static_cast<size_t>(number + rank.rank()) + tensor) % 2 == 0;
          const Status status =
              step.submit(*plan.value(), tensor, &right[static_cast<size_t>(number)][tensor],
                          lends ? collective::Kept::kForGood : collective::Kept::kUntilDone);
          ASSERT_TRUE(status.ok()) << status.message();
        }
        const Status status = step.wait();
        ASSERT_TRUE(status.ok()) << status.message();
      }
    });
  }
}

TEST(LargePlansAcross, EndWhereNodesBeginWithOtherBuckets) {
  using collective::across::NodesReduction;
  constexpr int64_t kEach =
      NodesReduction::kAtOnce;  // bytes: two nodes exchange it in parts, and two at once
  static_assert(kEach > static_cast<int64_t>(NodesReduction::small_bytes(2)));
  const auto specs = tensors_of(std::vector<int64_t>(9, kEach / sizeof(float)));
  FakeCluster cluster({0, 1});
  std::vector<Values> right;
  for (size_t tensor = 0; tensor < specs.size(); ++tensor)
    right.push_back(sum(cluster.nodes(), 0, tensor, specs[tensor].count()));
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Step step(specs, rank.rank(), 0);
    for (size_t k = 0; k < specs.size(); ++k) {
      const size_t tensor = rank.rank() == 0 ? k : specs.size() - 1 - k;
      ASSERT_TRUE(step.submit(*plan.value(), tensor, &right[tensor]).ok());
    }
    const Status status = step.wait();
    ASSERT_TRUE(status.ok()) << status.message();
  });
}

// Otherwise, over Open MPI and a slow link, the directions take turns.
TEST(LargePlansAcross, SendBeforeTheyReceive) {
  constexpr int64_t kElements = 3'000'000;
  const auto specs = tensors_of({kElements});
  for (const std::vector<int>& node_of : {std::vector{0, 1}, std::vector{0, 1, 2}, std::vector{0, 0, 1}}) {
    FakeCluster cluster(node_of);
    cluster.run([&](Cluster& rank) {
      auto plan = rank.add_plan("gradients", specs, 4096);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      for (int number = 0; number < 3; ++number) {
        Step step(specs, rank.rank(), number);
        const auto kept = number == 1 ? collective::Kept::kUntilDone : collective::Kept::kForGood;
        ASSERT_TRUE(step.submit(*plan.value(), 0, nullptr, kept).ok());
        const Status status = step.wait();
        ASSERT_TRUE(status.ok()) << status.message();
        Values values(kElements, 1);
        const Status summed = rank.call([&](Across& across) {
          return allreduce(across, values.data(), values.data(), values.size(), DType::kFloat32,
                           Reduction::kSum, "");
        });
        ASSERT_TRUE(summed.ok()) << summed.message();
      }
    });
    for (int node = 0; node <= node_of.back(); ++node) EXPECT_EQ(cluster.network().received_first(node), 0u);
  }
}

TEST(LargePlansAcross, SendWholeBucketsFromTheCallersMemoryIfItIsKept) {
  const auto specs = tensors_of({2'200'001});
  for (const bool is_kept : {true, false}) {
    FakeCluster cluster({0, 1});
    cluster.run([&](Cluster& rank) {
      auto plan = rank.add_plan("gradients", specs, 4096);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      Step step(specs, rank.rank(), 0);
      using collective::Kept;
      ASSERT_TRUE(step.submit(*plan.value(), 0, nullptr, is_kept ? Kept::kForGood : Kept::kUntilDone).ok());
      const Status status = step.wait();
      ASSERT_TRUE(status.ok()) << status.message();
      // all pieces but the last, which has padding; half of each goes to the other node
      const auto& buckets = plan.value()->layout().buckets;
      EXPECT_EQ(cluster.network().sent_from(rank.rank(), step.memory(0)),
                is_kept ? (buckets[0].bytes + buckets[1].bytes) / 2 : 0u);
    });
  }
}

TEST(LargePlansAcross, SendTensorsOfManyPiecesFromTheCallersMemoryOrNot) {
  const auto specs = tensors_of({2'200'001});  // three pieces, the last with padding
  FakeCluster cluster({0, 1});
  const std::vector<Values> sums = {sum(cluster.nodes(), 0, 0, specs[0].count()),
                                    gradient(0, 1, 0, specs[0].count()),
                                    sum(cluster.nodes(), 2, 0, specs[0].count())};
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan.value()->layout().buckets.size(), 3u);
    for (int number = 0; number < 3; ++number) {
      Step step(specs, rank.rank(), number, number == 1 && rank.rank() == 1);
      const Values& right = sums[static_cast<size_t>(number)];
      ASSERT_TRUE(step.submit(*plan.value(), 0, &right, collective::Kept::kForGood).ok());
      const Status status = step.wait();
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
}

/// Returns how many of all ranks' sums of few bytes have ended on the threads that submitted them, of 800.
int sums_that_wake_no_thread(bool own_cores) {
  constexpr int kSteps = 200;
  const auto specs = tensors_of({100, 10});
  FakeCluster cluster({0, 1}, 1, 1, own_cores);
  std::atomic<int> here{0};
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Values values(100, 1);
    for (int number = 0; number < kSteps; ++number) {
      std::atomic<int> open{2};
      const auto done = [&, submits = std::this_thread::get_id()](const Status& status, const void*) {
        EXPECT_TRUE(status.ok()) << status.message();
        if (std::this_thread::get_id() == submits) ++here;
        --open;
      };
      ASSERT_TRUE(plan.value()->submit(1, values.data(), 10, DType::kFloat32, done).ok());
      ASSERT_TRUE(plan.value()->submit(0, values.data(), 100, DType::kFloat32, done).ok());
      while (open.load() != 0) std::this_thread::yield();
    }
  });
  return here.load();
}

TEST(StepsAcross, OfFewBytesEndOnTheThreadThatSubmitsThem) {
  int here = 0;
  // on a busy machine the other rank may come too late
  for (int attempt = 0; attempt < 10 && here < 100; ++attempt) here = sums_that_wake_no_thread(true);
  EXPECT_GE(here, 100);  // of 800 tensors
}

TEST(StepsAcross, LeaveTheCoresToOthersWhileANodeIsLate) {
  constexpr Duration kLate = 500ms;
  const auto specs = tensors_of({100});
  FakeCluster cluster({0, 1}, 1, 1, true);
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const bool is_late = rank.rank() == 1;
    if (is_late) {
      EXPECT_LT(used_in(kLate), kLate / 10) << "while a node waits for a gradient";
    }
    Step step(specs, rank.rank(), 0);
    ASSERT_TRUE(step.submit(*plan.value(), 0, nullptr).ok());
    const Status summed = step.wait();
    ASSERT_TRUE(summed.ok()) << summed.message();
    if (is_late) {
      EXPECT_LT(used_in(kLate), kLate / 10) << "while a node waits in a call";
    }
    const Status met = rank.call([](Across& across) { return barrier(across, ""); });
    ASSERT_TRUE(met.ok()) << met.message();
  });
}

TEST(StepsAcross, DoNotEndInCallbacksThatSubmitThem) {
  constexpr int kSteps = 300;
  const auto specs = tensors_of({100});
  FakeCluster cluster({0, 1}, 1, 1, true);
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Values values(100, 1);
    static thread_local int depth = 0;
    std::atomic<int> submitted{0}, ended{0}, deepest{0};
    std::function<void()> submit;
    const auto done = [&](const Status& status, const void*) {
      EXPECT_TRUE(status.ok()) << status.message();
      ++depth;
      deepest = std::max(deepest.load(), depth);
      if (submitted.load() < kSteps) submit();
      --depth;
      ++ended;
    };
    submit = [&] {
      ++submitted;
      EXPECT_TRUE(plan.value()->submit(0, values.data(), 100, DType::kFloat32, done).ok());
    };
    submit();
    while (ended.load() != kSteps) std::this_thread::yield();
    EXPECT_LT(deepest.load(), 10);
  });
}

TEST(StepsAcross, LeaveTheCoreToOthersThatShareIt) { EXPECT_LT(sums_that_wake_no_thread(false), 100); }

TEST_P(PlansAcross, TwoPlansAndCallsMayRunAtTheSameTime) {
  const auto specs = tensors_of({3000, 20, 9000});
  FakeCluster cluster(node_of(), 5, 20, own_cores());
  cluster.run([&](Cluster& rank) {
    auto first = rank.add_plan("first", specs, 8192);
    auto second = rank.add_plan("second", specs, 8192);
    ASSERT_TRUE(first.ok() && second.ok());
    for (int number = 0; number < 5; ++number) {
      Step one(specs, rank.rank(), number), two(specs, rank.rank(), number + 100);
      // half of the ranks begin with the other plan
      for (size_t tensor = specs.size(); tensor-- > 0;) {
        const bool swapped = rank.rank() % 2 != 0;
        ASSERT_TRUE((swapped ? two : one).submit(*(swapped ? second : first).value(), tensor, nullptr).ok());
        ASSERT_TRUE((swapped ? one : two).submit(*(swapped ? first : second).value(), tensor, nullptr).ok());
      }
      int32_t ranks = 1;
      const Status met = rank.call([&](Across& across) {
        return allreduce(across, &ranks, &ranks, 1, DType::kInt32, Reduction::kSum, "count");
      });
      ASSERT_TRUE(met.ok()) << met.message();
      EXPECT_EQ(ranks, cluster.size());
      ASSERT_TRUE(one.wait().ok());
      ASSERT_TRUE(two.wait().ok());
    }
  });
}

TEST_P(PlansAcross, TheStepThatARankHasLeftOutIsNamed) {
  FakeCluster cluster(node_of(), 16, 20, own_cores());
  const int last = cluster.size() - 1;
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", tensors_of({300, 9000}), 4096, Numbers::kOfSteps);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const uint32_t number : {1u, 2u, 3u}) {
      if (number == 2 && rank.rank() == last) continue;
      Values data[] = {Values(300), Values(9000)};
      void* const tensors[] = {data[0].data(), data[1].data()};
      const Status status = plan.value()->run(tensors, nullptr, tensors, number);
      if (number == 1) {
        ASSERT_TRUE(status.ok()) << status.message();
        // no rank goes on, and ends the job, before all have the sums; it may end while others leave this call
        (void)rank.call([](Across& across) { return barrier(across, ""); });
        continue;
      }
      EXPECT_EQ(status.code(), Code::kMismatch);
      EXPECT_NE(status.message().find("step 2"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("step 3"), std::string::npos) << status.message();
    }
  });
}

TEST_P(PlansAcross, RanksWithoutDataAreZerosInTheSums) {
  const auto specs = tensors_of({300, 9000});
  FakeCluster cluster(node_of(), 9, 20, own_cores());
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (int epoch = 0; epoch < 2; ++epoch) {
      const auto steps_of = [&](int of) { return 2 * ((of + epoch) % cluster.size()); };
      for (int step = 0; step < steps_of(rank.rank()); ++step) {
        float right = 0;
        for (int each = 0; each < cluster.size(); ++each)
          right += step < steps_of(each) ? static_cast<float>(each + 1) : 0;
        std::vector<Values> data;
        for (const TensorSpec& spec : specs)
          data.emplace_back(spec.count(), static_cast<float>(rank.rank() + 1));
        void* const tensors[] = {data[0].data(), data[1].data()};
        const Status status = plan.value()->run(tensors, nullptr, tensors);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(data[0], Values(300, right)) << "step " << step;
        EXPECT_EQ(data[1], Values(9000, right)) << "step " << step;
      }
      ZeroSteps zeros(plan.value());
      ASSERT_TRUE(rank.call([](Across& across) { return barrier(across, ""); }).ok());
      auto steps = zeros.stop();
      const Status met = rank.call([&](Across& across) {
        return allreduce(across, steps.data(), steps.data(), steps.size(), DType::kInt64, Reduction::kMax,
                         "");
      });
      ASSERT_TRUE(met.ok()) << met.message();
      ASSERT_TRUE(zeros.finish(steps).ok());
    }
  });
}

TEST_P(PlansAcross, PlansMayBeMadeAndReleasedManyTimes) {
  const auto specs = tensors_of({300, 40});
  FakeCluster cluster(node_of(), 6, 3, own_cores());
  cluster.run([&](Cluster& rank) {
    for (int number = 0; number < 10; ++number) {
      auto plan = rank.add_plan("gradients", specs, 64);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      Step step(specs, rank.rank(), number);
      for (size_t tensor = 0; tensor < specs.size(); ++tensor)
        ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
      ASSERT_TRUE(step.wait().ok());
      rank.node()->remove_plan(plan.value());
    }
  });
}

TEST_P(PlansAcross, OtherTensorsOnOneRankAreNamedOnAll) {
  FakeCluster cluster(node_of(), 7, 20, own_cores());
  const int last = cluster.size() - 1;
  cluster.run([&](Cluster& rank) {
    const auto plan = rank.add_plan("gradients", tensors_of({10, rank.rank() == last ? 21 : 20}), 64);
    EXPECT_EQ(plan.status().code(), Code::kMismatch);
    const std::string right =
        text("gradients: rank ", last,
             " has \"t1\" float32 [21] as tensor 2 of 2, rank 0 has \"t1\" float32 [20]");
    EXPECT_NE(plan.status().message().find(right), std::string::npos) << plan.status().message();
  });
}

TEST_P(PlansAcross, AnotherThresholdOnOneRankIsNamedOnAll) {
  FakeCluster cluster(node_of(), 8, 20, own_cores());
  const int last = cluster.size() - 1;
  cluster.run([&](Cluster& rank) {
    const auto plan = rank.add_plan("gradients", tensors_of({10}), rank.rank() == last ? 128 : 64);
    EXPECT_EQ(plan.status().code(), Code::kMismatch);
    EXPECT_NE(plan.status().message().find(text("rank ", last, " has a fusion threshold of 128 bytes")),
              std::string::npos)
        << plan.status().message();
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, PlansAcross,
                         testing::Combine(testing::ValuesIn(names_of_layouts()), testing::Bool()),
                         [](const auto& test) {
                           return std::get<0>(test.param) + (std::get<1>(test.param) ? "_on_own_cores" : "");
                         });

TEST(EndsOfPlansAcross, ANodeThatEndsBeforeAStepIsNamedAfterTheGrace) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({2, 1}), 9);
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    if (rank.rank() == 2) return;
    Step step(specs, rank.rank(), 0);
    for (size_t tensor = 0; tensor < specs.size(); ++tensor)
      ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
    const Status status = step.wait();
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 2, which ended"), std::string::npos) << status.message();
  });
}

TEST(EndsOfPlansAcross, AStepOfOneNodeAndACallOfAnotherAreNamed) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({2, 1, 2}), 13);
  cluster.bridge_options().news_every = 50ms;
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Status status;
    Step step(specs, rank.rank(), 0);
    if (rank.rank() < 2) {
      for (size_t tensor = 0; tensor < specs.size(); ++tensor)
        ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
      status = step.wait();
    } else {
      status = rank.call([](Across& across) { return barrier(across, "late"); });
    }
    EXPECT_EQ(status.code(), Code::kMismatch);
    for (const char* part : {"rank 0 waits for gradients of rank", "which waits in barrier \"late\""})
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  });
}

TEST(EndsOfPlansAcross, ACallBesideAStepThatOthersMakeLateIsAwaited) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({1, 1}), 14);
  cluster.bridge_options().news_every = 50ms;
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    if (rank.rank() == 1) std::this_thread::sleep_for(5s);  // more than twice the grace
    Step step(specs, rank.rank(), 0);
    for (size_t tensor = 0; tensor < specs.size(); ++tensor)
      ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
    if (rank.rank() == 0) std::this_thread::sleep_for(2500ms);
    const Status met = rank.call([](Across& across) { return barrier(across, "late"); });
    EXPECT_TRUE(met.ok()) << met.message();
    const Status status = step.wait();
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

/// Node 1 stops when a call ends in which it has waited for longer than the grace: `before` it knows of the end, or in
/// the step that follows. When it goes on, it is not taken to have been in the call all the time.
void stop_at_the_end_of_a_long_call(bool before) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({1, 1}), 16, before ? 20 : 2);
  cluster.options().grace = 500ms;
  cluster.bridge_options().news_every = 100ms;
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    if (rank.rank() == 0) std::this_thread::sleep_for(1s);  // more than the grace
    if (rank.rank() == 0 && before) cluster.network().stop(1);
    const Status met = rank.call([](Across& across) { return barrier(across, "long"); });
    if (!met.ok()) cluster.network().resume(1);  // or it would never end
    ASSERT_TRUE(met.ok()) << met.message();
    if (rank.rank() == 0 && !before) cluster.network().stop(1);
    Step step(specs, rank.rank(), 0);
    for (size_t tensor = 0; tensor < specs.size(); ++tensor)
      ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
    if (rank.rank() == 0) {
      std::this_thread::sleep_for(1500ms);
      cluster.network().resume(1);
    }
    const Status status = step.wait();
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(EndsOfPlansAcross, ANodeThatStopsInAStepAfterALongCallIsNotTakenToBeStillInTheCall) {
  stop_at_the_end_of_a_long_call(false);
}

TEST(EndsOfPlansAcross, ANodeThatStopsBeforeALongCallEndsIsNotTakenToBeStillInTheCall) {
  stop_at_the_end_of_a_long_call(true);
}

TEST(EndsOfPlansAcross, ACutLinkEndsAStep) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({1, 2}), 10);
  cluster.bridge_options() = {.news_every = 20ms, .silence = 500ms, .stopped = 200ms};
  std::atomic<int> made{0};
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ++made;
    while (made.load() != cluster.size()) std::this_thread::yield();
    if (rank.rank() == 0) cluster.network().cut(0, 1);
    Status status;
    for (int number = 0; status.ok(); ++number) {
      Step step(specs, rank.rank(), number);
      for (size_t tensor = 0; tensor < specs.size() && status.ok(); ++tensor)
        status = step.submit(*plan.value(), tensor, nullptr);
      if (status.ok()) status = step.wait();
    }
    EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
    EXPECT_NE(status.message().find("has heard nothing from it for"), std::string::npos) << status.message();
  });
}

TEST(EndsOfPlansAcross, APartOfAnotherLengthIsNotTaken) {
  constexpr size_t kBytes = 4032;
  for (const size_t sent : {size_t{0}, kBytes - 64, kBytes + 64}) {
    FakeCluster cluster(nodes_of_sizes({1, 1}), sent, 2);
    cluster.run([&](Cluster& rank) {
      const std::vector<collective::Bucket> buckets = {{DType::kFloat32, 0, kBytes}};
      const Values values(2 * kBytes / sizeof(float));
      std::unique_ptr<collective::BucketReduction> reduction;
      const Status made = rank.call([&](Across& across) -> Status {
        if (rank.rank() == 1) {  // makes the same calls, and sends a part of its own
          uint32_t tag = 0;
          const Status told = broadcast(across, &tag, 1, DType::kUInt32, 0, "gradients");
          (void)across.bridge()->send(0, tag, std::as_bytes(std::span(values)).first(sent), nullptr);
          return told;
        }
        auto node = collective::NodeReduction::create(across.node().group(), buckets, "gradients");
        if (!node.ok()) return node.status();
        auto all = collective::across::NodesReduction::create(across, std::move(node).value(), buckets,
                                                              "gradients", Numbers::kNone);
        if (!all.ok()) return all.status();
        reduction = std::move(all).value();
        return {};
      });
      ASSERT_TRUE(made.ok()) << made.message();
      if (reduction != nullptr) {
        reduction->put(0, {0, kBytes}, reinterpret_cast<const std::byte*>(values.data()),
                       collective::Kept::kUntilDone);
        reduction->start(0, 0);
      }
      const Deadline limit = Deadline::after(20s);
      while (rank.group().failure().ok() && !limit.passed()) {
        if (reduction == nullptr) {
          std::this_thread::sleep_for(1ms);
        } else if (reduction->advance(0) == collective::BucketReduction::Advanced::kDone) {
          break;
        }
      }
      const Status status = rank.group().failure();
      EXPECT_EQ(status.code(), Code::kMismatch);
      const std::string words =
          text("rank 0 failed in the exchange of gradients: a message of ", sent,
               " bytes came from rank 1 where ", sent > kBytes ? "at most " : "", kBytes, " were expected");
      EXPECT_EQ(status.message(), words);
    });
  }
}

/// What the leader of each of `nodes` nodes sends in a step of one bucket of `bytes` bytes, beside its news.
std::vector<transport::FakeNetwork::Sent> sent_in_step(const std::vector<int>& sizes, size_t bytes,
                                                       Numbers numbers = Numbers::kNone) {
  FakeCluster cluster(nodes_of_sizes(sizes), 15);
  cluster.bridge_options() = {.news_every = 3600s, .silence = 3600s, .stopped = 3600s};  // only the first
  const auto specs = tensors_of({static_cast<int64_t>(bytes / sizeof(float))});
  std::vector<transport::FakeNetwork::Sent> sent(sizes.size());
  cluster.run([&](Cluster& rank) {
    auto plan = rank.add_plan("gradients", specs, 0, numbers);  // one bucket
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(rank.call([](Across& across) { return barrier(across, ""); }).ok());
    const size_t node = cluster.nodes().node_of(rank.rank());
    const auto before = cluster.network().sent(static_cast<int>(node));
    Step step(specs, rank.rank(), 0);
    ASSERT_TRUE(step.submit(*plan.value(), 0, nullptr).ok());
    const Status status = step.wait();
    ASSERT_TRUE(status.ok()) << status.message();
    if (rank.rank() != cluster.nodes().leader(node)) return;
    const auto after = cluster.network().sent(static_cast<int>(node));
    sent[node] = {after.messages - before.messages, after.bytes - before.bytes};
  });
  return sent;
}

class CountsOfPlansAcross : public testing::TestWithParam<size_t> {};

// docs/performance.md states these.
TEST_P(CountsOfPlansAcross, ALargeBucketIsSentTwiceWhateverTheNumberOfNodes) {
  const size_t nodes = GetParam();
  const size_t bytes = nodes * 4096;
  for (const auto& sent : sent_in_step(std::vector<int>(nodes, nodes <= 8 ? 2 : 4), bytes)) {
    EXPECT_EQ(sent.messages, 2 * (nodes - 1));
    EXPECT_EQ(sent.bytes, 2 * (nodes - 1) * bytes / nodes);
  }
}

TEST_P(CountsOfPlansAcross, ASmallBucketIsOneMessageToEachNode) {
  const size_t nodes = GetParam();
  for (const auto& sent : sent_in_step(std::vector<int>(nodes, nodes <= 8 ? 1 : 4), 1024)) {
    EXPECT_EQ(sent.messages, nodes - 1);
    EXPECT_EQ(sent.bytes, (nodes - 1) * 1024);
  }
}

TEST(CountsOfPlansOfTwoNodes, ExchangeABucketOf256KibibytesInOneMessage) {
  constexpr size_t kMost = collective::across::NodesReduction::small_bytes(2);
  for (const auto& sent : sent_in_step({1, 2}, kMost)) {
    EXPECT_EQ(sent.messages, 1u);
    EXPECT_EQ(sent.bytes, kMost);
  }
  for (const auto& sent : sent_in_step({1, 2}, kMost + 128)) {
    EXPECT_EQ(sent.messages, 2u);
    EXPECT_EQ(sent.bytes, kMost + 128);
  }
}

TEST(CountsOfPlansOfTwoNodes, ANumberedBucketIsOneMessageMore) {
  for (const auto& sent : sent_in_step({1, 2}, 1024, Numbers::kOfSteps)) {
    EXPECT_EQ(sent.messages, 2u);
    EXPECT_EQ(sent.bytes, 1024 + sizeof(uint32_t));
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, CountsOfPlansAcross, testing::Values(5, 8, kManyNodes),
                         [](const auto& nodes) { return std::to_string(nodes.param); });

TEST(TagsOfPlans, RangesDoNotOverlapAndComeBackLate) {
  collective::across::Tags tags;
  const auto a = tags.take(1000), b = tags.take(31'000);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, collective::across::kFirstTag);
  EXPECT_EQ(*b, *a + 1000);
  EXPECT_FALSE(tags.take(1000));
  tags.give_back(*a);
  const auto c = tags.take(700);
  ASSERT_TRUE(c);
  EXPECT_EQ(*c, *b + 31'000) << "the range that was used last longest ago";
  EXPECT_EQ(tags.take(1000), a);
}

}  // namespace
}  // namespace tarantella::engine
