#include <functional>

#include "captured.h"
#include "collective/node_group.h"
#include "collective/stall_detector.h"
#include "world.h"

namespace tarantella::collective {
namespace {

using Groups = OnRanks;

TEST_P(Groups, AllgatherOneNumberARank) {
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    for (uint64_t round = 0; round < 100; ++round) {
      const auto values = group.value()->allgather(round * 10 + static_cast<uint64_t>(rank), "numbers");
      ASSERT_TRUE(values.ok());
      for (int other = 0; other < world_.size(); ++other) {
        ASSERT_EQ(values.value()[static_cast<size_t>(other)], round * 10 + static_cast<uint64_t>(other));
      }
    }
  });
}

TEST_P(Groups, TheFirstCauseWins) {
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    const Status first = group.value()->fail({Code::kMismatch, text("cause of rank ", rank)});
    EXPECT_EQ(first.code(), Code::kMismatch);
    EXPECT_EQ(group.value()->failure().message(), first.message());
    const auto after = group.value()->allgather(1, "after");
    EXPECT_EQ(after.status().message(), first.message());
  });
}

TEST_P(Groups, WaitForNotificationsOfOneRank) {
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    for (uint32_t round = 0; round < 50; ++round) {
      if (rank == 0) {
        group.value()->notify("alone", 1);  // nobody waits for it
        for (uint32_t i = 0; i < 2; ++i) group.value()->notify("file", 10 * round + i);
      } else {
        for (uint32_t i = 0; i < 2; ++i) {
          const auto notification = group.value()->wait_notification(0, "file");
          ASSERT_TRUE(notification.ok()) << notification.status().message();
          ASSERT_EQ(notification.value(), 10 * round + i);  // those of earlier rounds do not count
        }
      }
      ASSERT_TRUE(group.value()->barrier("round").ok());
    }
  });
}

TEST_P(Groups, SayThatAPostMayBeLostAmongMany) {
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    static std::atomic<int> ready;
    if (rank == 0) {
      ready = 0;
      for (int i = 0; i < 2000; ++i) group.value()->notify("other", 0);
      ready = 1;
    } else {
      while (ready.load() != 1) std::this_thread::yield();
      const auto notification = group.value()->wait_notification(0, "file");
      EXPECT_EQ(notification.status().code(), Code::kMismatch);
      EXPECT_NE(notification.status().message().find(
                    "rank 0 notified more than 1,000 times since the last collective call"),
                std::string::npos)
          << notification.status().message();
    }
    EXPECT_TRUE(group.value()->barrier("end").ok());
    ready = 0;
  });
}

TEST_P(Groups, FindTheLastPostAtAnyTime) {
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    using Found = std::optional<uint32_t>;
    const auto expect = [&](const char* name, Found value) {
      if (rank != 0) {
        EXPECT_EQ(group.value()->find_notification(0, name).value(), value);
      }
      EXPECT_TRUE(group.value()->barrier("next").ok());
    };
    expect("file", std::nullopt);
    for (uint32_t i = 1; rank == 0 && i <= 3; ++i) group.value()->notify("file", i);
    EXPECT_TRUE(group.value()->barrier("notified").ok());
    expect("file", 3);  // those before a collective call count, too
    expect("other", std::nullopt);
    for (uint32_t i = 0; rank == 0 && i < 1023; ++i) group.value()->notify("other", i);
    EXPECT_TRUE(group.value()->barrier("notified").ok());
    expect("file", std::nullopt);  // too many since
    expect("other", 1022);
  });
}

TEST_P(Groups, EndAWaitForAPostThatNeverComes) {
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    if (rank == 0) {
      group.value()->notify("file", 0);
      EXPECT_TRUE(group.value()->barrier("first").ok());
    } else {
      ASSERT_TRUE(group.value()->barrier("first").ok());
      const auto notification = group.value()->wait_notification(0, "file");
      EXPECT_EQ(notification.status().code(), Code::kMismatch);
      EXPECT_NE(notification.status().message().find("waits in file: rank 0 has continued without it"),
                std::string::npos)
          << notification.status().message();
    }
    EXPECT_TRUE(group.value()->barrier("second").ok());  // nobody else has failed
    if (rank != 0) {
      EXPECT_EQ(group.value()->wait_notification(0, "file").status().code(),
                Code::kMismatch);  // rank 0 leaves
    }
  });
}

TEST_P(Groups, EndAWaitForARankThatLeft) {
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    if (rank == 1) return;
    const Status status = group.value()->barrier("a sync that rank 1 skips");
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("waits in a sync that rank 1 skips: rank 1 has ended"), std::string::npos)
        << status.message();
  });
}

TEST_P(Groups, EndAWaitForARankWithoutASignOfLife) {
  world_.options().stuck_timeout = 2s;
  std::atomic<int> waiting{world_.size() - 1};
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    if (rank == 1) {  // lives, but no progress thread beats: as if stopped by a signal
      while (waiting.load() != 0) std::this_thread::sleep_for(1ms);
      return;
    }
    const Status status = group.value()->barrier("a sync");
    --waiting;
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("rank 1 is stopped or stuck"), std::string::npos) << status.message();
  });
}

TEST_P(Groups, CountSilenceOnlyWhileTheyLook) {
  world_.options().stuck_timeout = 2s;
  std::atomic<int> waiting{world_.size() - 1};
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    if (rank == 1) {
      while (waiting.load() != 0) std::this_thread::sleep_for(1ms);
      return;
    }
    StallDetector watch(*group.value(), WaitKind::kExclusive, true, "a call");
    EXPECT_TRUE(watch.check(1).ok());
    std::this_thread::sleep_for(2200ms);  // as if this rank had been stopped: then rank 1 was, too
    const Status status = watch.check(1);
    EXPECT_TRUE(status.ok()) << status.message();
    --waiting;
  });
}

TEST_P(Groups, DoNotMistakeARankThatIsStoppedInACallForOneThatDisagrees) {
  std::atomic<bool> stopped{false};
  std::atomic<bool> resumed{false};
  std::atomic<int> left{world_.size()};
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(group.ok());
    if (rank == 0) {
      while (!stopped) std::this_thread::yield();
      StallDetector step(*group.value(), WaitKind::kGradients, true, "a step");
      for (const Deadline later = Deadline::after(4 * world_.options().failure_delay); !later.passed();) {
        const Status status = step.check(1);
        ASSERT_TRUE(status.ok()) << status.message();
        std::this_thread::sleep_for(10ms);
      }
      resumed = true;
      while (step.check(1).ok()) std::this_thread::sleep_for(10ms);
    } else if (rank == 1) {
      StallDetector call(*group.value(), WaitKind::kExclusive, true, "a call");
      ASSERT_TRUE(call.check(0).ok());  // the wait may end now: a signal keeps this rank from seeing it
      stopped = true;
      while (!resumed) std::this_thread::yield();
      while (call.check(0).ok()) std::this_thread::sleep_for(10ms);
    }
    --left;
    while (left != 0) std::this_thread::yield();
    if (rank < 2) {
      EXPECT_EQ(group.value()->failure().code(), Code::kMismatch) << group.value()->failure().message();
    }
  });
}

TEST_P(Groups, WaitOnForARankThatIsBusyElsewhere) {
  world_.options().stuck_timeout = 3s;
  world_.run([&](engine::Context& context) {
    if (context.group().rank() == 1) std::this_thread::sleep_for(5s);  // its progress thread beats
    EXPECT_TRUE(context.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST_P(Groups, EndAWaitForABusyRankAfterTheLimitForStalls) {
  world_.options().stall = 500ms;
  world_.run([&](engine::Context& context) {
    auto& group = context.group();
    while (group.rank() == 1 && group.failure().ok()) std::this_thread::yield();
    const Status status = context.call([](Communicator& comm) { return comm.barrier("b"); });
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("waits in barrier \"b\": rank 1 did not arrive within"),
              std::string::npos)
        << status.message();
    EXPECT_TRUE(group.rank_table().wants_stacks());
  });
}

TEST_P(Groups, SayInALongWaitWhereTheAwaitedRankIs) {
  world_.options().warn_every = 500ms;
  std::atomic<bool> over{false};
  testing::internal::CaptureStderr();
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto made = NodeGroup::create(std::move(memory), world_.options());
    ASSERT_TRUE(made.ok());
    NodeGroup& group = *made.value();
    if (rank == 1) {  // answers two questions, then not
      std::thread answers([&] {
        uint32_t seen = 0;
        for (int line = 5; group.await_location_query(seen).ok(); ++line) {
          if (line < 7) group.report_location(text("stuck.py:", line, std::string(300, ' ')));
        }
      });
      while (!over) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(group.barrier("a call").ok());
      group.close();
      answers.join();
      return;
    }
    if (rank == 0) {
      const auto check_until_said = [&](int awaited, const char* line) {
        StallDetector watch(group, WaitKind::kExclusive, true, "a step");
        for (const Deadline end = Deadline::after(30s);
             captured_so_far().find(line) == std::string::npos && !end.passed();
             std::this_thread::sleep_for(20ms))
          EXPECT_TRUE(watch.check(awaited).ok());
      };
      check_until_said(1, "it was last seen in stuck.py:6");
      if (world_.size() > 2) check_until_said(2, "for rank 2 in a step");
      over = true;
    } else {
      while (!over) std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(group.barrier("a call").ok());
  });
  const std::string said = testing::internal::GetCapturedStderr();
  const auto has = [&](const std::string& line) {
    EXPECT_NE(said.find(line), std::string::npos) << line << "\nin\n" << said;
  };
  has("rank 0 has waited ");
  has(" s for rank 1 in a step; rank 1 is in stuck.py:5");
  has("rank 1 is in stuck.py:6");
  has("rank 1 is alive, but a call of its Python holds the interpreter lock; it was last seen in "
      "stuck.py:6");
  if (world_.size() > 2) has("for rank 2 in a step; rank 2 is alive and busy elsewhere");
}

/// What becomes of rank 0, whose thread makes a group of all ranks of its job, where the others have agreed to do so
/// and then do `meanwhile` instead: on each rank, called with its number and its context.
Status end_of_a_creation(World& world,
                         const std::function<void(int, std::unique_ptr<engine::Context>&)>& meanwhile) {
  std::vector<int> all;
  std::vector<uint64_t> numbers;
  for (int rank = 0; rank < world.size(); ++rank) {
    all.push_back(rank);
    numbers.push_back(static_cast<uint64_t>(rank));
  }
  std::atomic<int> agreed{0};
  std::atomic<bool> over{false};
  Status end;
  world.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto made = join(std::move(memory), world.options());
    ASSERT_TRUE(made.ok());
    auto context = std::move(made).value();
    if (rank != 0) {
      EXPECT_TRUE(context
                      ->call([&](Communicator& comm) {
                        return comm.compare_call(
                            {.operation = Operation::kGroup, .count = numbers.size(), .counts = numbers});
                      })
                      .ok());
      ++agreed;
      std::this_thread::sleep_for(200ms);
      meanwhile(rank, context);
      while (!over) std::this_thread::sleep_for(1ms);
      return;
    }
    std::thread creates([&] {
      end = context->split(all).status();
      over = true;
    });
    while (agreed != world.size() - 1 && !over) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(200ms);
    meanwhile(rank, context);
    creates.join();
  });
  return end;
}

TEST_P(Groups, EndTheCreationOfAnotherWhereThisRankCloses) {
  world_.options().stuck_timeout = 6s;
  const Status end = end_of_a_creation(world_, [](int rank, auto& context) {
    if (rank == 0) context->close();
  });
  EXPECT_EQ(end.code(), Code::kPeerLost);
  EXPECT_EQ(end.message(), "this rank has closed its context");
}

TEST_P(Groups, EndTheCreationOfAnotherWithTheirOwnFailure) {
  world_.options().stuck_timeout = 6s;
  const Status end = end_of_a_creation(world_, [](int rank, auto& context) {
    if (rank == 1) (void)context->group().fail({Code::kMismatch, "the cause"});
  });
  EXPECT_EQ(end.code(), Code::kMismatch);
  EXPECT_EQ(end.message(), "the cause");
}

TEST_P(Groups, EndTheCreationOfAnotherWhereAMemberLeavesThemInstead) {
  world_.options().stuck_timeout = 6s;
  const Status end = end_of_a_creation(world_, [](int rank, auto& context) {
    if (rank == 1) context.reset();
  });
  EXPECT_EQ(end.code(), Code::kPeerLost);
  EXPECT_NE(end.message().find("rank 1 has ended"), std::string::npos) << end.message();
}

TEST_P(Groups, EndTheStartWithARankThatGivesUpItsMemory) {
  world_.options().stuck_timeout = 6s;
  std::atomic<int> waiting{world_.size() - 1};
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    if (rank == 1) {  // and lives on, as a program that catches the error
      memory.reset();
      while (waiting != 0) std::this_thread::sleep_for(1ms);
      return;
    }
    const Status end = NodeGroup::create(std::move(memory), world_.options()).status();
    --waiting;
    EXPECT_EQ(end.code(), Code::kPeerLost);
    EXPECT_NE(end.message().find("waits in the start of the job: rank 1 has ended"), std::string::npos)
        << end.message();
  });
}

TNT_ON_RANKS(Groups, 2, 3);

TEST(ContextOnFake, EndsWithoutSleepingThroughItsEnd) {
  for (int i = 0; i < 1000; ++i) {
    transport::FakeNode node(1);
    node.set_least_sleep(60s);
    auto context = join(node.memory(0), {});
    ASSERT_TRUE(context.ok());
    for (int spins = i % 64 * 40; spins > 0; --spins) asm volatile("");
    const auto begin = Clock::now();
    context = Status();
    ASSERT_LT(Clock::now() - begin, 30s) << "of a sleep of a minute, in run " << i;
  }
}

TEST(NodeGroupOnFake, NamesTheDead) {
  World world("fake", 3);
  world.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world.options());
    ASSERT_TRUE(group.ok());
    ASSERT_TRUE(group.value()->barrier("all").ok());
    if (rank == 2) {
      world.node().end(2);
      while (group.value()->failure().ok()) std::this_thread::sleep_for(1ms);
      return;
    }
    const Status status = group.value()->barrier("step 5");
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("waits in step 5: rank 2 has died"), std::string::npos)
        << status.message();
  });
}

TEST(NodeGroupOnFake, TellsTheOthersThatARankCannotMapIt) {
  World world("fake", 3);
  const std::vector<int> all = {0, 1, 2};
  std::atomic<int> waiting{2};
  world.run([&](engine::Context& context) {
    const int rank = context.group().rank();
    if (rank == 1) world.node().group(0, all).refuse_maps(rank);
    const Status end = context.split(all).status();
    EXPECT_EQ(end.code(), Code::kSystem);
    EXPECT_EQ(end.message(), "rank 1 failed in the creation of a group: map: refused");
    if (rank != 1) --waiting;
    for (const Deadline limit = Deadline::after(30s); waiting != 0 && !limit.passed();)
      std::this_thread::sleep_for(1ms);
    EXPECT_EQ(waiting, 0) << "the others wait while rank 1 lives";
  });
}

TEST(NodeGroupOnFake, TellsARankThatLeftAndEndedFromOneThatDied) {
  World world("fake", 2);
  std::shared_ptr<RankTable> kept;  // as by another group
  const Status end = end_of_a_creation(world, [&](int rank, auto& context) {
    if (rank != 1) return;
    kept = context->group().share_rank_table();
    context.reset();
    world.node().end(1);
  });
  EXPECT_EQ(end.code(), Code::kPeerLost);
  EXPECT_NE(end.message().find("rank 0 waits in the creation of a group: rank 1 has ended"),
            std::string::npos)
      << end.message();
}

TEST(NodeGroupOnFake, SaysOnAllRanksThatMemoryIsShort) {
  World world("fake", 2);
  world.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), world.options());
    ASSERT_TRUE(group.ok());
    ASSERT_TRUE(group.value()->barrier("all").ok());
    if (rank == 0) world.node().set_available_bytes(5 << 20);
    ASSERT_TRUE(group.value()->barrier("set").ok());
    const auto region = group.value()->map(64 << 20, "the gradients");
    EXPECT_EQ(region.status().code(), Code::kOutOfMemory);
    EXPECT_NE(region.status().message().find(
                  "too little memory for the gradients of 2 ranks: 65 MiB are needed and 5 MiB are left"),
              std::string::npos)
        << region.status().message();
    EXPECT_TRUE(group.value()->barrier("the group goes on").ok());
  });
}

}  // namespace
}  // namespace tarantella::collective
