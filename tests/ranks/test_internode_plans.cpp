// Plans of jobs on several nodes: sums and their bits, buckets of all sizes, disagreements and ends of nodes, over a
// network that delays and reorders.

#include <algorithm>
#include <cstring>
#include <latch>
#include <numeric>
#include <random>

#include "cluster.h"
#include "collective/internode/internode_reduction.h"
#include "collective/kernels.h"
#include "collective/shared_memory_reduction.h"
#include "completion.h"
#include "cpu_time.h"
#include "engine/plan.h"
#include "engine/zero_contributions.h"
#include "made_data.h"

namespace tarantella::engine {
namespace {

using Values = std::vector<float>;

Values gradient(int rank, int step, size_t tensor, size_t count) {
  return made_floats(static_cast<uint32_t>(rank * 1009 + step * 31 + static_cast<int>(tensor)), count);
}

/// The sums of the nodes, each in rank order, in the order of nodes.
Values sum(const collective::internode::NodeMap& nodes, int step, size_t tensor, size_t count) {
  Values total;
  for (size_t node = 0; node < nodes.count(); ++node) {
    Values partial;
    for (const int rank : nodes.ranks_of(node)) add(partial, gradient(rank, step, tensor, count));
    add(total, std::move(partial));
  }
  return total;
}

/// Of memory that outlives the job.
std::shared_ptr<const void> an_owner() {
  static const char kept = 0;
  return {&kept, [](const void*) {}};
}

/// Submits all tensors of a step and waits for their sums.
class Step {
 public:
  /// With `zeros` nothing is handed in, which stands for zeros.
  Step(const std::vector<TensorSpec>& specs, int rank, int number, bool zeros = false)
      : completion_(specs.size()), number_(number), zeros_(zeros) {
    for (size_t tensor = 0; tensor < specs.size(); ++tensor)
      gradients_.push_back(gradient(rank, number, tensor, specs[tensor].count()));
  }
  Status submit(Plan& plan, size_t tensor, const Values* right, std::shared_ptr<const void> owner = nullptr) {
    const Values& data = gradients_[tensor];
    return plan.submit(
        tensor, zeros_ ? nullptr : data.data(), data.size(), DType::kFloat32,
        [this, right, bytes = data.size() * sizeof(float)](const Status& status, const void* result) {
          if (status.ok() && right != nullptr && bytes != 0) {
            EXPECT_EQ(std::memcmp(result, right->data(), bytes), 0) << "step " << number_;
          }
          completion_.done(status);
        },
        std::move(owner), zeros_ ? 0 : static_cast<uint32_t>(number_ + 1));
  }
  std::span<const std::byte> memory(size_t tensor) const {
    return std::as_bytes(std::span(gradients_[tensor]));
  }
  Status wait() { return completion_.wait(); }

 private:
  std::vector<Values> gradients_;
  Completion completion_;
  const int number_;
  const bool zeros_;
};

std::vector<TensorSpec> tensors_of(const std::vector<int64_t>& counts) {
  std::vector<TensorSpec> specs;
  for (const int64_t count : counts) specs.push_back({text("t", specs.size()), DType::kFloat32, {count}});
  return specs;
}

// The largest is one that two nodes sum two-shot.
const std::vector<int64_t> kCounts = {100, 7, 0, 5000, 1, 70'000, 333, 16'384, 12, 270'000};

/// The layout, and whether ranks have cores of their own.
class InternodePlans : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  const std::vector<int>& node_of() const { return kLayouts.at(std::get<0>(GetParam())); }
  bool dedicated_cores() const { return std::get<1>(GetParam()); }
};

TEST_P(InternodePlans, SumsHaveTheBitsOfTheLayoutInEveryStepAndOrder) {
  const auto specs = tensors_of(kCounts);
  for (const size_t threshold : {size_t{0}, size_t{4096}, size_t{100'000}}) {
    FakeCluster cluster(node_of(), threshold + 1, 20, dedicated_cores());
    constexpr int kSteps = 4;
    std::vector<std::vector<Values>> right(kSteps);
    for (int step = 0; step < kSteps; ++step) {
      for (size_t tensor = 0; tensor < specs.size(); ++tensor)
        right[static_cast<size_t>(step)].push_back(sum(cluster.nodes(), step, tensor, specs[tensor].count()));
    }
    cluster.run([&](Context& rank) {
      auto plan = rank.add_plan("gradients", specs, threshold,
                                threshold != 0 ? StepCheck::kAllNodes : StepCheck::kOnNode);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      std::mt19937 random(static_cast<uint32_t>(rank.rank()));
      std::vector<size_t> order(specs.size());
      std::iota(order.begin(), order.end(), 0);
      for (int number = 0; number < kSteps; ++number) {
        std::shuffle(order.begin(), order.end(), random);
        Step step(specs, rank.rank(), number);
        for (const size_t tensor : order) {
          // some nodes send from the caller's memory what others copy
          const bool zero_copy = (static_cast<size_t>(number + rank.rank()) + tensor) % 2 == 0;
          const Status status =
              step.submit(*plan.value(), tensor, &right[static_cast<size_t>(number)][tensor],
                          zero_copy ? an_owner() : nullptr);
          ASSERT_TRUE(status.ok()) << status.message();
        }
        const Status status = step.wait();
        ASSERT_TRUE(status.ok()) << status.message();
      }
    });
  }
}

TEST(LargeInternodePlans, EndWhereNodesBeginWithOtherBuckets) {
  using collective::internode::InternodeReduction;
  constexpr int64_t kEach =
      InternodeReduction::kMaxBytesInFlight;  // bytes: two nodes sum it two-shot, and two at once
  static_assert(kEach > static_cast<int64_t>(InternodeReduction::one_shot_bytes(2)));
  const auto specs = tensors_of(std::vector<int64_t>(9, kEach / sizeof(float)));
  FakeCluster cluster({0, 1});
  std::vector<Values> right;
  for (size_t tensor = 0; tensor < specs.size(); ++tensor)
    right.push_back(sum(cluster.nodes(), 0, tensor, specs[tensor].count()));
  cluster.run([&](Context& rank) {
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
TEST(LargeInternodePlans, SendBeforeTheyReceive) {
  constexpr int64_t kElements = 3'000'000;
  const auto specs = tensors_of({kElements});
  for (const std::vector<int>& node_of : {std::vector{0, 1}, std::vector{0, 1, 2}, std::vector{0, 0, 1}}) {
    FakeCluster cluster(node_of);
    cluster.run([&](Context& rank) {
      auto plan = rank.add_plan("gradients", specs, 4096);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      for (int number = 0; number < 3; ++number) {
        Step step(specs, rank.rank(), number);
        ASSERT_TRUE(step.submit(*plan.value(), 0, nullptr, number == 1 ? nullptr : an_owner()).ok());
        const Status status = step.wait();
        ASSERT_TRUE(status.ok()) << status.message();
        Values values(kElements, 1);
        const Status summed = rank.call([&](collective::Communicator& comm) {
          return comm.allreduce(values.data(), values.data(), values.size(), DType::kFloat32, Reduction::kSum,
                                "");
        });
        ASSERT_TRUE(summed.ok()) << summed.message();
      }
    });
    for (int node = 0; node <= node_of.back(); ++node) EXPECT_EQ(cluster.network().received_first(node), 0u);
  }
}

TEST(LargeInternodePlans, SendWholeBucketsFromTheCallersMemoryIfItHasAnOwner) {
  const auto specs = tensors_of({2'200'001});
  for (const bool has_owner : {true, false}) {
    FakeCluster cluster({0, 1});
    cluster.run([&](Context& rank) {
      auto plan = rank.add_plan("gradients", specs, 4096);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      Step step(specs, rank.rank(), 0);
      ASSERT_TRUE(step.submit(*plan.value(), 0, nullptr, has_owner ? an_owner() : nullptr).ok());
      const Status status = step.wait();
      ASSERT_TRUE(status.ok()) << status.message();
      // all pieces but the last, which has padding; half of each goes to the other node
      const auto& buckets = plan.value()->layout().buckets;
      EXPECT_EQ(cluster.network().sent_from(rank.rank(), step.memory(0)),
                has_owner ? (buckets[0].bytes + buckets[1].bytes) / 2 : 0u);
    });
  }
}

TEST(LargeInternodePlans, SendTensorsOfManyPiecesFromTheCallersMemoryOrNot) {
  const auto specs = tensors_of({2'200'001});  // three pieces, the last with padding
  FakeCluster cluster({0, 1});
  const std::vector<Values> sums = {sum(cluster.nodes(), 0, 0, specs[0].count()),
                                    gradient(0, 1, 0, specs[0].count()),
                                    sum(cluster.nodes(), 2, 0, specs[0].count())};
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan.value()->layout().buckets.size(), 3u);
    for (int number = 0; number < 3; ++number) {
      Step step(specs, rank.rank(), number, number == 1 && rank.rank() == 1);
      const Values& right = sums[static_cast<size_t>(number)];
      ASSERT_TRUE(step.submit(*plan.value(), 0, &right, an_owner()).ok());
      const Status status = step.wait();
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
}

/// Returns how many of all ranks' sums of few bytes have ended on the threads that submitted them, of 800.
int sums_that_wake_no_thread(bool dedicated_cores) {
  constexpr int kSteps = 200;
  const auto specs = tensors_of({100, 10});
  FakeCluster cluster({0, 1}, 1, 1, dedicated_cores);
  std::atomic<int> here{0};
  cluster.run([&](Context& rank) {
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

TEST(InternodeSteps, OfFewBytesEndOnTheThreadThatSubmitsThem) {
  int here = 0;
  // 0 of 800 where no thread takes part in the exchange it begins; on a busy machine the other rank may come too late
  for (int attempt = 0; attempt < 10 && here == 0; ++attempt) here = sums_that_wake_no_thread(true);
  EXPECT_GT(here, 0);
}

TEST(InternodeSteps, LeaveTheCoresToOthersWhileANodeIsLate) {
  constexpr Duration kLate = 500ms;
  const auto specs = tensors_of({100});
  FakeCluster cluster({0, 1}, 1, 1, true);
  cluster.run([&](Context& rank) {
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
    const Status barrier = rank.call([](collective::Communicator& comm) { return comm.barrier(""); });
    ASSERT_TRUE(barrier.ok()) << barrier.message();
  });
}

TEST(InternodeSteps, DoNotEndInCallbacksThatSubmitThem) {
  constexpr int kSteps = 300;
  const auto specs = tensors_of({100});
  FakeCluster cluster({0, 1}, 1, 1, true);
  cluster.run([&](Context& rank) {
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

TEST(InternodeSteps, LeaveTheCoreToOthersThatShareIt) { EXPECT_LT(sums_that_wake_no_thread(false), 100); }

TEST_P(InternodePlans, TwoPlansAndCallsMayRunAtTheSameTime) {
  const auto specs = tensors_of({3000, 20, 9000});
  FakeCluster cluster(node_of(), 5, 20, dedicated_cores());
  cluster.run([&](Context& rank) {
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
      const Status barrier = rank.call([&](collective::Communicator& comm) {
        return comm.allreduce(&ranks, &ranks, 1, DType::kInt32, Reduction::kSum, "count");
      });
      ASSERT_TRUE(barrier.ok()) << barrier.message();
      EXPECT_EQ(ranks, cluster.size());
      ASSERT_TRUE(one.wait().ok());
      ASSERT_TRUE(two.wait().ok());
    }
  });
}

TEST_P(InternodePlans, TheStepThatARankHasLeftOutIsNamed) {
  FakeCluster cluster(node_of(), 16, 20, dedicated_cores());
  const int last = cluster.size() - 1;
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", tensors_of({300, 9000}), 4096, StepCheck::kAllNodes);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const uint32_t number : {1u, 2u, 3u}) {
      if (number == 2 && rank.rank() == last) continue;
      Values data[] = {Values(300), Values(9000)};
      void* const tensors[] = {data[0].data(), data[1].data()};
      const Status status = plan.value()->run(tensors, nullptr, tensors, number);
      if (number == 1) {
        ASSERT_TRUE(status.ok()) << status.message();
        // no rank goes on, and ends the job, before all have the sums; it may end while others leave this call
        (void)rank.call([](collective::Communicator& comm) { return comm.barrier(""); });
        continue;
      }
      EXPECT_EQ(status.code(), Code::kMismatch);
      EXPECT_NE(status.message().find("step 2"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("step 3"), std::string::npos) << status.message();
    }
  });
}

TEST_P(InternodePlans, RanksWithoutDataAreZerosInTheSums) {
  const auto specs = tensors_of({300, 9000});
  FakeCluster cluster(node_of(), 9, 20, dedicated_cores());
  cluster.run([&](Context& rank) {
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
      ZeroContributions zeros(plan.value());
      ASSERT_TRUE(rank.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
      auto steps = zeros.stop();
      const Status barrier = rank.call([&](collective::Communicator& comm) {
        return comm.allreduce(steps.data(), steps.data(), steps.size(), DType::kInt64, Reduction::kMax, "");
      });
      ASSERT_TRUE(barrier.ok()) << barrier.message();
      ASSERT_TRUE(zeros.finish(steps).ok());
    }
  });
}

TEST_P(InternodePlans, PlansMayBeMadeAndReleasedManyTimes) {
  const auto specs = tensors_of({300, 40});
  FakeCluster cluster(node_of(), 6, 3, dedicated_cores());
  cluster.run([&](Context& rank) {
    for (int number = 0; number < 10; ++number) {
      auto plan = rank.add_plan("gradients", specs, 64);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      Step step(specs, rank.rank(), number);
      for (size_t tensor = 0; tensor < specs.size(); ++tensor)
        ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
      ASSERT_TRUE(step.wait().ok());
      rank.remove_plan(plan.value());
    }
  });
}

TEST_P(InternodePlans, OtherTensorsOnOneRankAreNamedOnAll) {
  FakeCluster cluster(node_of(), 7, 20, dedicated_cores());
  const int last = cluster.size() - 1;
  cluster.run([&](Context& rank) {
    const auto plan = rank.add_plan("gradients", tensors_of({10, rank.rank() == last ? 21 : 20}), 64);
    EXPECT_EQ(plan.status().code(), Code::kMismatch);
    const std::string right =
        text("gradients: rank ", last,
             " has \"t1\" float32 [21] as tensor 2 of 2, rank 0 has \"t1\" float32 [20]");
    EXPECT_NE(plan.status().message().find(right), std::string::npos) << plan.status().message();
  });
}

TEST_P(InternodePlans, AnotherThresholdOnOneRankIsNamedOnAll) {
  FakeCluster cluster(node_of(), 8, 20, dedicated_cores());
  const int last = cluster.size() - 1;
  cluster.run([&](Context& rank) {
    const auto plan = rank.add_plan("gradients", tensors_of({10}), rank.rank() == last ? 128 : 64);
    EXPECT_EQ(plan.status().code(), Code::kMismatch);
    EXPECT_NE(plan.status().message().find(text("rank ", last, " has a fusion threshold of 128 bytes")),
              std::string::npos)
        << plan.status().message();
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, InternodePlans,
                         testing::Combine(testing::ValuesIn(names_of_layouts()), testing::Bool()),
                         [](const auto& test) {
                           return std::get<0>(test.param) + (std::get<1>(test.param) ? "_on_own_cores" : "");
                         });

TEST(EndsOfInternodePlans, ANodeThatEndsBeforeAStepIsNamedAfterTheGrace) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({2, 1}), 9);
  cluster.run([&](Context& rank) {
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

TEST(EndsOfInternodePlans, AStepOfOneNodeAndACallOfAnotherAreNamed) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({2, 1, 2}), 13);
  cluster.link_options().status_every = 50ms;
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Status status;
    Step step(specs, rank.rank(), 0);
    if (rank.rank() < 2) {
      for (size_t tensor = 0; tensor < specs.size(); ++tensor)
        ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
      status = step.wait();
    } else {
      status = rank.call([](collective::Communicator& comm) { return comm.barrier("late"); });
    }
    EXPECT_EQ(status.code(), Code::kMismatch);
    for (const char* part : {"rank 0 waits for gradients of rank", "which waits in barrier \"late\""})
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  });
}

TEST(EndsOfInternodePlans, ACallBesideAStepThatOthersMakeLateIsAwaited) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({1, 1}), 14);
  cluster.link_options().status_every = 50ms;
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    if (rank.rank() == 1) std::this_thread::sleep_for(5s);  // more than twice the failure delay
    Step step(specs, rank.rank(), 0);
    for (size_t tensor = 0; tensor < specs.size(); ++tensor)
      ASSERT_TRUE(step.submit(*plan.value(), tensor, nullptr).ok());
    if (rank.rank() == 0) std::this_thread::sleep_for(2500ms);
    const Status barrier = rank.call([](collective::Communicator& comm) { return comm.barrier("late"); });
    EXPECT_TRUE(barrier.ok()) << barrier.message();
    const Status status = step.wait();
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

/// Node 1 stops when a call ends in which it has waited for longer than the failure delay: `before` it knows of the
/// end, or in the step that follows. When it goes on, it is not taken to have been in the call all the time.
void stop_at_the_end_of_a_long_call(bool before) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({1, 1}), 16, before ? 20 : 2);
  cluster.options().failure_delay = 500ms;
  cluster.link_options().status_every = 100ms;
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    if (rank.rank() == 0) std::this_thread::sleep_for(1s);  // more than the failure delay
    if (rank.rank() == 0 && before) cluster.network().stop(1);
    const Status barrier = rank.call([](collective::Communicator& comm) { return comm.barrier("long"); });
    if (!barrier.ok()) cluster.network().resume(1);  // or it would never end
    ASSERT_TRUE(barrier.ok()) << barrier.message();
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

TEST(EndsOfInternodePlans, ANodeThatStopsInAStepAfterALongCallIsNotTakenToBeStillInTheCall) {
  stop_at_the_end_of_a_long_call(false);
}

TEST(EndsOfInternodePlans, ANodeThatStopsBeforeALongCallEndsIsNotTakenToBeStillInTheCall) {
  stop_at_the_end_of_a_long_call(true);
}

TEST(EndsOfInternodePlans, ACutLinkEndsAStep) {
  const auto specs = tensors_of({30'000, 10});
  FakeCluster cluster(nodes_of_sizes({1, 2}), 10);
  cluster.link_options() = {.status_every = 20ms, .stuck_timeout = 500ms, .stopped = 200ms};
  std::atomic<int> made{0};
  cluster.run([&](Context& rank) {
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
    EXPECT_NE(status.message().find("has received nothing from it for"), std::string::npos)
        << status.message();
  });
}

// Node 1 never takes part in the second step, in which node 0 sends from the caller's memory.
TEST(EndsOfInternodePlans, TheCallersMemoryIsReleasedOnceNothingIsSentFromItAnyMore) {
  FakeCluster cluster({0, 1}, 3);
  const auto specs = tensors_of({1 << 16, 1 << 16});
  std::atomic<int> released{0}, submitted{0};
  std::latch past_barrier(2);
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", specs, 4096);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Step first(specs, rank.rank(), 0), second(specs, rank.rank(), 1);
    const auto owner = [&] {
      ++submitted;
      static const char kept = 0;
      return std::shared_ptr<const void>(&kept, [&](const void*) { ++released; });
    };
    for (const size_t tensor : {1, 0})
      ASSERT_TRUE(first.submit(*plan.value(), tensor, nullptr, owner()).ok());
    ASSERT_TRUE(first.wait().ok());
    ASSERT_TRUE(rank.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
    past_barrier.arrive_and_wait();
    if (rank.rank() == 0) {
      const size_t before = cluster.network().sent(0).messages;
      ASSERT_TRUE(second.submit(*plan.value(), 1, nullptr, owner()).ok());
      while (cluster.network().sent(0).messages == before) std::this_thread::yield();
      (void)rank.group().fail({Code::kPeerLost, "the test"});
      (void)second.submit(*plan.value(), 0, nullptr, owner());  // the plan may not know yet
    }
    Deadline limit = Deadline::after(20s);
    while (rank.group().failure().ok() && !limit.passed()) std::this_thread::yield();
    rank.close();
  });
  EXPECT_EQ(submitted, 6);
  EXPECT_EQ(released, 6);
}

class RetiredTags : public testing::TestWithParam<uint64_t> {};

// Node 0 begins a step that node 1 leaves out; then tags come round.
TEST_P(RetiredTags, OfAStepThatWasGivenUpAreNotUsedAgain) {
  FakeCluster cluster({0, 1}, GetParam());
  cluster.run([&](Context& rank) {
    const auto one = tensors_of({16});
    {
      auto plan = rank.add_plan("given up", one, 0);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      Step step(one, rank.rank(), 100);
      const bool begins = rank.rank() == 0;
      if (begins) {
        ASSERT_TRUE(step.submit(*plan.value(), 0, nullptr).ok());
      }
      ASSERT_TRUE(rank.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
      rank.remove_plan(plan.value());
      if (begins) {
        EXPECT_EQ(step.wait().code(), Code::kInvalidArgument);
      }
    }
    std::vector<collective::Bucket> many;
    for (size_t i = 0; i + 40 < transport::kTags; ++i) many.push_back({DType::kFloat32, 64 * i, 64});
    for (int round = 0; round < 3; ++round) {
      std::unique_ptr<collective::BucketReduction> reduction;
      const Status made = rank.call([&](collective::Communicator& comm) -> Status {
        auto took = comm.make_reduction(many, "many", StepCheck::kOnNode);
        if (!took.ok()) return took.status();
        reduction = std::move(took).value();
        return {};
      });
      ASSERT_TRUE(made.ok()) << made.message();
      reduction.reset();
      for (int plans = 0; plans < 24; ++plans) {
        auto plan = rank.add_plan("later", one, 0);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        Step step(one, rank.rank(), plans);
        const Values right = sum(cluster.nodes(), plans, 0, 16);
        ASSERT_TRUE(step.submit(*plan.value(), 0, &right).ok());
        const Status status = step.wait();
        ASSERT_TRUE(status.ok()) << status.message();
        rank.remove_plan(plan.value());
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Networks, RetiredTags, testing::Values(1, 2, 3));

TEST(EndsOfInternodePlans, APartOfAnotherLengthIsNotTaken) {
  constexpr size_t kBytes = 4032;
  for (const size_t sent : {size_t{0}, kBytes - 64, kBytes + 64}) {
    FakeCluster cluster(nodes_of_sizes({1, 1}), sent, 2);
    cluster.run([&](Context& rank) {
      const std::vector<collective::Bucket> buckets = {{DType::kFloat32, 0, kBytes}};
      const Values values(2 * kBytes / sizeof(float));
      std::unique_ptr<collective::BucketReduction> reduction;
      const Status made = rank.call([&](collective::Communicator& comm) -> Status {
        if (rank.rank() == 1) {  // makes the same calls, and sends a part of its own
          uint32_t tag = 0;
          uint32_t is_retired = 0;
          TNT_RETURN_IF_ERROR(comm.broadcast(&tag, 1, DType::kUInt32, 0, "gradients"));
          const Status told =
              comm.allreduce(&is_retired, &is_retired, 1, DType::kUInt32, Reduction::kMax, "gradients");
          (void)internode_of(comm).link()->send(0, tag, std::as_bytes(std::span(values)).first(sent),
                                                nullptr);
          return told;
        }
        auto all = comm.make_reduction(buckets, "gradients", StepCheck::kOnNode);
        if (!all.ok()) return all.status();
        reduction = std::move(all).value();
        return {};
      });
      ASSERT_TRUE(made.ok()) << made.message();
      if (reduction != nullptr) {
        reduction->put(0, {0, kBytes}, reinterpret_cast<const std::byte*>(values.data()), nullptr);
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

/// What the leader of each of `nodes` nodes sends in a step of one bucket of `bytes` bytes, beside its status.
std::vector<transport::FakeNetwork::Sent> sent_in_step(const std::vector<int>& sizes, size_t bytes,
                                                       StepCheck step_check = StepCheck::kOnNode) {
  FakeCluster cluster(nodes_of_sizes(sizes), 15);
  cluster.link_options() = {
      .status_every = 3600s, .stuck_timeout = 3600s, .stopped = 3600s};  // only the first
  const auto specs = tensors_of({static_cast<int64_t>(bytes / sizeof(float))});
  std::vector<transport::FakeNetwork::Sent> sent(sizes.size());
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", specs, 0, step_check);  // one bucket
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(rank.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
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

class CountsOfInternodePlans : public testing::TestWithParam<size_t> {};

// docs/performance.md states these.
TEST_P(CountsOfInternodePlans, ALargeBucketIsSentTwiceWhateverTheNumberOfNodes) {
  const size_t nodes = GetParam();
  const size_t bytes = nodes * 4096;
  for (const auto& sent : sent_in_step(std::vector<int>(nodes, nodes <= 8 ? 2 : 4), bytes)) {
    EXPECT_EQ(sent.messages, 2 * (nodes - 1));
    EXPECT_EQ(sent.bytes, 2 * (nodes - 1) * bytes / nodes);
  }
}

TEST_P(CountsOfInternodePlans, ASmallBucketIsOneMessageToEachNode) {
  const size_t nodes = GetParam();
  for (const auto& sent : sent_in_step(std::vector<int>(nodes, nodes <= 8 ? 1 : 4), 1024)) {
    EXPECT_EQ(sent.messages, nodes - 1);
    EXPECT_EQ(sent.bytes, (nodes - 1) * 1024);
  }
}

TEST(CountsOfPlansOfTwoNodes, ExchangeABucketOf256KibibytesInOneMessage) {
  constexpr size_t kMost = collective::internode::InternodeReduction::one_shot_bytes(2);
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
  for (const auto& sent : sent_in_step({1, 2}, 1024, StepCheck::kAllNodes)) {
    EXPECT_EQ(sent.messages, 2u);
    EXPECT_EQ(sent.bytes, 1024 + sizeof(uint32_t));
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, CountsOfInternodePlans, testing::Values(5, 8, kManyNodes),
                         [](const auto& nodes) { return std::to_string(nodes.param); });

TEST(PlanTags, RangesDoNotOverlapAndComeBackLate) {
  collective::internode::TagAllocator tags;
  const auto a = tags.allocate(1000), b = tags.allocate(31'000);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, collective::internode::kFirstPlanTag);
  EXPECT_EQ(*b, *a + 1000);
  EXPECT_FALSE(tags.allocate(1000));
  tags.release(*a);
  const auto c = tags.allocate(700);
  ASSERT_TRUE(c);
  EXPECT_EQ(*c, *b + 31'000) << "the range that was used last longest ago";
  EXPECT_EQ(tags.allocate(1000), a);
}

TEST(PlanTags, ALeaderKnowsWhichItStillUsesOrMustNotUseAgain) {
  collective::internode::TagAllocator tags;
  tags.reserve(100, 10);
  EXPECT_TRUE(tags.overlaps(109, 1) && tags.overlaps(50, 51) && tags.overlaps(90, 100));
  EXPECT_FALSE(tags.overlaps(50, 50) || tags.overlaps(110, 5));
  tags.release(100);
  EXPECT_FALSE(tags.overlaps(100, 10));
  tags.retire(200);
  EXPECT_TRUE(tags.has_retired(190, 11) && tags.has_retired(200, 1));
  EXPECT_FALSE(tags.has_retired(190, 10) || tags.has_retired(201, 9));
}

}  // namespace
}  // namespace tarantella::engine
