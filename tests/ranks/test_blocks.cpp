// What ranks say of one another where they meet in blocks: the same as where each looks at all.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/operations.h"
#include "collective/watch.h"
#include "world.h"

namespace tarantella::collective {
namespace {

bool has(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

/// Nine ranks in three blocks of three, unless a test says otherwise.
class InBlocks : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kLate = 8;

  /// Runs body(group, stage) on one thread a rank. No rank has a progress thread.
  void run(const std::function<void(Group&, Stage&)>& body) {
    world_.run_memories([&](int, std::unique_ptr<transport::Memory> memory) {
      const auto group = Group::create(std::move(memory), world_.options());
      ASSERT_TRUE(group.ok()) << group.status().message();
      const auto stage = Stage::create(*group.value());
      ASSERT_TRUE(stage.ok()) << stage.status().message();
      ASSERT_EQ(group.value()->blocks().count(), 3u);
      body(*group.value(), *stage.value());
    });
  }

  World world_{GetParam(), 9};
};

TEST_P(InBlocks, AllRanksShowThatTheyWaitForTheLateOneItself) {
  run([&](Group& group, Stage& stage) {
    const auto waits_for = [&](int rank) { return group.members().waits(rank).newest.load().rank - 1; };
    for (int round = 0; round < 3; ++round) {
      const int late = (kLate + 4 * round) % group.size();
      const Deadline limit = Deadline::after(30s);
      for (int other = 0; other < group.size() && group.rank() == late; ++other) {
        if (other == late) continue;
        while (waits_for(other) != late && !limit.passed()) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(waits_for(other), late) << "of rank " << other;
      }
      const Status met = barrier(stage, "");
      EXPECT_TRUE(met.ok()) << met.message();
    }
  });
}

TEST_P(InBlocks, TheyNameTheRankThatEnded) {
  run([&](Group& group, Stage& stage) {
    EXPECT_TRUE(barrier(stage, "").ok());
    if (group.rank() == kLate) return;
    const Status end = barrier(stage, "x");
    EXPECT_EQ(end.code(), Code::kPeerLost);
    EXPECT_TRUE(has(end, "waits in barrier \"x\": rank 8 has ended")) << end.message();
  });
}

TEST_P(InBlocks, TheyNameTheRankWithoutASignOfLife) {
  world_.options().timeout = 2s;
  std::atomic<int> waiting{kLate};
  run([&](Group& group, Stage& stage) {
    if (group.rank() == kLate) {
      while (waiting != 0) std::this_thread::sleep_for(1ms);
      return;
    }
    const Status end = barrier(stage, "x");
    --waiting;
    EXPECT_EQ(end.code(), Code::kTimeout);
    EXPECT_TRUE(has(end, "waits in barrier \"x\": rank 8 is stopped or stuck: no sign of life"))
        << end.message();
  });
}

TEST_P(InBlocks, TheyNameTheFirstRankThatMakesAnotherCall) {
  run([&](Group& group, Stage& stage) {
    const bool differs = group.rank() == 4 || group.rank() == 7;
    const Status end = barrier(stage, differs ? "y" : "x");
    EXPECT_EQ(end.code(), Code::kMismatch);
    EXPECT_TRUE(has(end, "rank 4 called barrier \"y\" while rank 0 called barrier \"x\"")) << end.message();
  });
}

TEST_P(InBlocks, ABlockThatMakesAnotherCallIsNamedByItsFirstRank) {
  run([&](Group& group, Stage& stage) {
    const Status end = barrier(stage, group.blocks().block_of(group.rank()) == 1 ? "y" : "x");
    EXPECT_EQ(end.code(), Code::kMismatch);
    EXPECT_TRUE(has(end, "rank 3 called barrier \"y\" while rank 0 called barrier \"x\"")) << end.message();
  });
}

TEST_P(InBlocks, AFailureEndsTheWaitsOfAll) {
  run([&](Group& group, Stage& stage) {
    static std::atomic<Clock::time_point> failed;
    EXPECT_TRUE(barrier(stage, "").ok());
    if (group.rank() == kLate) {
      std::this_thread::sleep_for(300ms);
      failed = Clock::now();
      (void)group.fail({Code::kMismatch, "the cause"});
      return;
    }
    const Status end = barrier(stage, "x");
    EXPECT_EQ(end.message(), "the cause");
    EXPECT_LT(Clock::now() - failed.load(), 20s);  // of a limit of a minute, on a busy machine
  });
}

TEST_P(InBlocks, CircleOfWaitsThroughAnotherBlockEndsTheJob) {
  world_.options().timeout = 6s;
  run([&](Group& group, Stage& stage) {
    if (group.rank() != kLate) {
      const Status end = barrier(stage, "x");
      EXPECT_EQ(end.code(), Code::kMismatch) << end.message();
      return;
    }
    Watch watch(group, WaitFor::kCall, true, "another call");  // of another group, for rank 0
    Status end;
    for (const Deadline limit = Deadline::after(30s); end.ok() && !limit.passed();) {
      end = watch.check(0);
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_TRUE(has(end, "make the calls of all groups in the same order")) << end.message();
  });
}

TEST_P(InBlocks, APlanAwaitsTheLateRankItself) {
  std::atomic<int> found{0};
  world_.run([&](engine::Communicator& communicator) {
    const auto made = communicator.add_plan("p", {{"w", DType::kFloat32, {100}}}, 0);
    ASSERT_TRUE(made.ok()) << made.status().message();
    engine::Plan& plan = *made.value();
    const int rank = communicator.group().rank();
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

TEST_P(InBlocks, FewerThanNineRanksMeetInOneUnlessTheirOptionsSayOtherwise) {
  for (const int one_level : {8, 2}) {
    World world(GetParam(), 4);
    world.options().one_level = one_level;
    world.run([&](engine::Communicator& communicator) {
      EXPECT_EQ(communicator.group().blocks().count(), one_level == 8 ? 1u : 2u);
      int64_t sum = communicator.group().rank();
      EXPECT_TRUE(communicator
                      .call([&](Stage& stage) {
                        return allreduce(stage, &sum, &sum, 1, DType::kInt64, Reduction::kSum, "");
                      })
                      .ok());
      EXPECT_EQ(sum, 6);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, InBlocks, testing::Values("fake", "shm"));

TEST(InBlocksOnFake, TheyNameTheDead) {
  World world("fake", 9);
  world.run_memories([&](int rank, std::unique_ptr<transport::Memory> memory) {
    const auto group = Group::create(std::move(memory), world.options());
    ASSERT_TRUE(group.ok());
    const auto stage = Stage::create(*group.value());
    ASSERT_TRUE(stage.ok());
    if (rank == 8) {
      world.node().end(8);
      while (group.value()->failure().ok()) std::this_thread::sleep_for(1ms);
      return;
    }
    const Status end = barrier(*stage.value(), "x");
    EXPECT_EQ(end.code(), Code::kPeerLost);
    EXPECT_TRUE(has(end, "waits in barrier \"x\": rank 8 has died")) << end.message();
  });
}

TEST(InBlocksOnFake, TheRanksOfACacheAreABlockInAGroupToo) {
  World world("fake", 18);
  world.set_caches({1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
  const std::vector<int> some = {0, 2, 4, 6, 8, 10, 12, 14, 16};
  world.run([&](engine::Communicator& communicator) {
    const auto made = communicator.create_group(some);
    ASSERT_TRUE(made.ok()) << made.status().message();
    if (made.value() == nullptr) return;
    const Blocks& blocks = made.value()->group().blocks();
    ASSERT_EQ(blocks.count(), 3u);
    for (int rank = 0; rank < 9; ++rank)
      EXPECT_EQ(blocks.block_of(rank), blocks.block_of((rank + 3) % 9)) << "rank " << rank;
  });
}

}  // namespace
}  // namespace tarantella::collective
