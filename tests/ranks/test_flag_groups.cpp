// What ranks say of one another where they exchange by flag groups: the same as where each polls all.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/stall_detector.h"
#include "world.h"

namespace tarantella::collective {
namespace {

bool has(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

/// Nine ranks in three flag groups of three, unless a test says otherwise.
class InFlagGroups : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kLate = 8;

  /// Runs body(group, staging) on one thread a rank. No rank has a progress thread.
  void run(const std::function<void(NodeGroup&, NodeCommunicator&)>& body) {
    world_.run_memories([&](int, std::unique_ptr<transport::NodeMemory> memory) {
      const auto group = NodeGroup::create(std::move(memory), world_.options());
      ASSERT_TRUE(group.ok()) << group.status().message();
      const auto comm = NodeCommunicator::create(group.value());
      ASSERT_TRUE(comm.ok()) << comm.status().message();
      ASSERT_EQ(group.value()->flag_groups().count(), 3u);
      body(*group.value(), *comm.value());
    });
  }

  World world_{GetParam(), 9};
};

TEST_P(InFlagGroups, AllRanksShowThatTheyWaitForTheLateOneItself) {
  run([&](NodeGroup& group, NodeCommunicator& comm) {
    const auto waits_for = [&](int rank) { return group.rank_table().waits(rank).newest.load().rank - 1; };
    for (int round = 0; round < 3; ++round) {
      const int late = (kLate + 4 * round) % group.size();
      const Deadline limit = Deadline::after(30s);
      for (int other = 0; other < group.size() && group.rank() == late; ++other) {
        if (other == late) continue;
        while (waits_for(other) != late && !limit.passed()) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(waits_for(other), late) << "of rank " << other;
      }
      const Status met = comm.barrier("");
      EXPECT_TRUE(met.ok()) << met.message();
    }
  });
}

TEST_P(InFlagGroups, TheyNameTheRankThatEnded) {
  run([&](NodeGroup& group, NodeCommunicator& comm) {
    EXPECT_TRUE(comm.barrier("").ok());
    if (group.rank() == kLate) return;
    const Status end = comm.barrier("x");
    EXPECT_EQ(end.code(), Code::kPeerLost);
    EXPECT_TRUE(has(end, "waits in barrier \"x\": rank 8 has ended")) << end.message();
  });
}

TEST_P(InFlagGroups, TheyNameTheRankWithoutASignOfLife) {
  world_.options().stuck_timeout = 2s;
  std::atomic<int> waiting{kLate};
  run([&](NodeGroup& group, NodeCommunicator& comm) {
    if (group.rank() == kLate) {
      while (waiting != 0) std::this_thread::sleep_for(1ms);
      return;
    }
    const Status end = comm.barrier("x");
    --waiting;
    EXPECT_EQ(end.code(), Code::kTimeout);
    EXPECT_TRUE(has(end, "waits in barrier \"x\": rank 8 is stopped or stuck: no sign of life"))
        << end.message();
  });
}

TEST_P(InFlagGroups, TheyNameTheFirstRankThatMakesAnotherCall) {
  run([&](NodeGroup& group, NodeCommunicator& comm) {
    const bool differs = group.rank() == 4 || group.rank() == 7;
    const Status end = comm.barrier(differs ? "y" : "x");
    EXPECT_EQ(end.code(), Code::kMismatch);
    EXPECT_TRUE(has(end, "rank 4 called barrier \"y\" while rank 0 called barrier \"x\"")) << end.message();
  });
}

TEST_P(InFlagGroups, AFlagGroupThatMakesAnotherCallIsNamedByItsFirstRank) {
  run([&](NodeGroup& group, NodeCommunicator& comm) {
    const Status end = comm.barrier(group.flag_groups().group_of(group.rank()) == 1 ? "y" : "x");
    EXPECT_EQ(end.code(), Code::kMismatch);
    EXPECT_TRUE(has(end, "rank 3 called barrier \"y\" while rank 0 called barrier \"x\"")) << end.message();
  });
}

TEST_P(InFlagGroups, AFailureEndsTheWaitsOfAll) {
  run([&](NodeGroup& group, NodeCommunicator& comm) {
    static std::atomic<Clock::time_point> failed;
    EXPECT_TRUE(comm.barrier("").ok());
    if (group.rank() == kLate) {
      std::this_thread::sleep_for(300ms);
      failed = Clock::now();
      (void)group.fail({Code::kMismatch, "the cause"});
      return;
    }
    const Status end = comm.barrier("x");
    EXPECT_EQ(end.message(), "the cause");
    EXPECT_LT(Clock::now() - failed.load(), 20s);  // of a limit of a minute, on a busy machine
  });
}

TEST_P(InFlagGroups, CircleOfWaitsThroughAnotherFlagGroupEndsTheJob) {
  world_.options().stuck_timeout = 6s;
  run([&](NodeGroup& group, NodeCommunicator& comm) {
    if (group.rank() != kLate) {
      const Status end = comm.barrier("x");
      EXPECT_EQ(end.code(), Code::kMismatch) << end.message();
      return;
    }
    StallDetector watch(group, WaitKind::kExclusive, true, "another call");  // of another group, for rank 0
    Status end;
    for (const Deadline limit = Deadline::after(30s); end.ok() && !limit.passed();) {
      end = watch.check(0);
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_TRUE(has(end, "make the calls of all groups in the same order")) << end.message();
  });
}

TEST_P(InFlagGroups, APlanAwaitsTheLateRankItself) {
  std::atomic<int> found{0};
  world_.run([&](engine::Context& context) {
    const auto made = context.add_plan("p", {{"w", DType::kFloat32, {100}}}, 0);
    ASSERT_TRUE(made.ok()) << made.status().message();
    engine::Plan& plan = *made.value();
    const int rank = context.group().rank();
    const Deadline limit = Deadline::after(30s);
    const auto awaits = [&](int other) {
      const auto awaited = plan.awaited();
      return awaited && awaited->rank == other;
    };
    std::vector<float> gradient(100, 1.0F);
    while (rank == kLate && found != kLate && !limit.passed()) std::this_thread::sleep_for(1ms);
    std::thread steps([&] {
      const void* input = gradient.data();
      void* output = gradient.data();
      EXPECT_TRUE(plan.run(&input, nullptr, &output).ok());
    });
    if (rank != kLate) {
      while (!awaits(kLate) && !limit.passed()) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(awaits(kLate));
      ++found;
    }
    steps.join();
    EXPECT_EQ(gradient[99], 9.0F);
  });
}

TEST_P(InFlagGroups, FewerThanNineRanksShareOneUnlessTheirOptionsSayOtherwise) {
  for (const int one_level : {8, 2}) {
    World world(GetParam(), 4);
    world.options().one_level = one_level;
    world.run([&](engine::Context& context) {
      EXPECT_EQ(context.group().flag_groups().count(), one_level == 8 ? 1u : 2u);
      int64_t sum = context.group().rank();
      EXPECT_TRUE(context
                      .call([&](Communicator& comm) {
                        return comm.allreduce(&sum, &sum, 1, DType::kInt64, Reduction::kSum, "");
                      })
                      .ok());
      EXPECT_EQ(sum, 6);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, InFlagGroups, testing::Values("fake", "shm"));

TEST(InBlocksOnFake, TheyNameTheDead) {
  World world("fake", 9);
  world.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    const auto group = NodeGroup::create(std::move(memory), world.options());
    ASSERT_TRUE(group.ok());
    const auto comm = NodeCommunicator::create(group.value());
    ASSERT_TRUE(comm.ok());
    if (rank == 8) {
      world.node().end(8);
      while (group.value()->failure().ok()) std::this_thread::sleep_for(1ms);
      return;
    }
    const Status end = comm.value()->barrier("x");
    EXPECT_EQ(end.code(), Code::kPeerLost);
    EXPECT_TRUE(has(end, "waits in barrier \"x\": rank 8 has died")) << end.message();
  });
}

TEST(InBlocksOnFake, TheRanksOfACacheAreABlockInAGroupToo) {
  World world("fake", 18);
  world.set_caches({1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
  const std::vector<int> some = {0, 2, 4, 6, 8, 10, 12, 14, 16};
  world.run([&](engine::Context& context) {
    const auto made = context.split(some);
    ASSERT_TRUE(made.ok()) << made.status().message();
    if (made.value() == nullptr) return;
    const FlagGroups& flag_groups = made.value()->group().flag_groups();
    ASSERT_EQ(flag_groups.count(), 3u);
    for (int rank = 0; rank < 9; ++rank)
      EXPECT_EQ(flag_groups.group_of(rank), flag_groups.group_of((rank + 3) % 9)) << "rank " << rank;
  });
}

}  // namespace
}  // namespace tarantella::collective
