#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "collective/chunking.h"
#include "world.h"

namespace tarantella::collective {
namespace {

constexpr size_t kChunk = chunk_bytes(9);  // of the most ranks in these tests

template <typename T>
std::vector<T> values(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank) * 7919 + 1);
  std::vector<T> data(count);
  for (T& value : data) value = static_cast<T>(static_cast<double>(random()) / 1e6);
  return data;
}

using Collectives = OnRanks;

TEST_P(Collectives, AllreduceSums) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, 3 * kChunk / sizeof(float) + 5}) {
    auto right = values<float>(0, count);
    for (int rank = 1; rank < world_.size(); ++rank) {
      const auto next = values<float>(rank, count);
      for (size_t i = 0; i < count; ++i) right[i] += next[i];
    }
    world_.run([&](engine::Context& context) {
      auto data = values<float>(context.group().rank(), count);
      const Status status = context.call([&](Communicator& comm) {
        return comm.allreduce(data.data(), data.data(), count, DType::kFloat32, Reduction::kSum, "sums");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(data == right) << count << " elements";
    });
  }
}

TEST_P(Collectives, BroadcastCopiesFromEveryRoot) {
  const size_t count = kChunk / sizeof(double) + 3;
  world_.run([&](engine::Context& context) {
    for (int root = 0; root < world_.size(); ++root) {
      auto data = values<double>(context.group().rank(), count);
      const Status status = context.call([&](Communicator& comm) {
        return comm.broadcast(data.data(), count, DType::kFloat64, root, "from each");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(data == values<double>(root, count));
    }
  });
}

TEST_P(Collectives, AllgatherJoinsInRankOrder) {
  const size_t count = 2 * kChunk / sizeof(int64_t) + 1;
  world_.run([&](engine::Context& context) {
    const auto own = values<int64_t>(context.group().rank(), count);
    std::vector<int64_t> all(count * static_cast<size_t>(world_.size()));
    const std::vector<uint64_t> counts(static_cast<size_t>(world_.size()), count);
    const Status status = context.call([&](Communicator& comm) {
      return comm.allgather(own.data(), all.data(), counts, DType::kInt64, "all");
    });
    ASSERT_TRUE(status.ok()) << status.message();
    for (int rank = 0; rank < world_.size(); ++rank) {
      const auto right = values<int64_t>(rank, count);
      EXPECT_EQ(
          std::memcmp(all.data() + static_cast<size_t>(rank) * count, right.data(), count * sizeof(int64_t)),
          0);
    }
  });
}

/// Numbers of elements of each rank: none, few, more than a stage holds.
std::vector<uint64_t> uneven_counts(int size) {
  std::vector<uint64_t> counts;
  for (int rank = 0; rank < size; ++rank)
    counts.push_back(rank % 3 == 0 ? 3 : rank % 3 == 1 ? 0 : kChunk / sizeof(int64_t) + 7);
  return counts;
}

TEST_P(Collectives, AllgatherTakesDifferentCounts) {
  world_.run([&](engine::Context& context) {
    const auto counts = uneven_counts(world_.size());
    std::vector<int64_t> right;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const auto part = values<int64_t>(rank, counts[static_cast<size_t>(rank)]);
      right.insert(right.end(), part.begin(), part.end());
    }
    const auto own =
        values<int64_t>(context.group().rank(), counts[static_cast<size_t>(context.group().rank())]);
    std::vector<int64_t> all(right.size());
    const Status status = context.call([&](Communicator& comm) {
      return comm.allgather(own.empty() ? nullptr : own.data(), all.data(), counts, DType::kInt64, "all");
    });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(all == right);
  });
}

TEST_P(Collectives, AlltoallGivesEachRankItsPart) {
  const auto size = static_cast<size_t>(world_.size());
  const auto count = [](size_t from, size_t to) { return (from * 5 + to * 3) % 7 * 30'000 % 50'021; };
  const auto value = [](size_t from, size_t to, size_t i) {
    return static_cast<int64_t>(from * 1'000'000'000 + to * 10'000'000 + i);
  };
  world_.run([&](engine::Context& context) {
    const auto rank = static_cast<size_t>(context.group().rank());
    std::vector<uint64_t> send;
    std::vector<uint64_t> receive;
    std::vector<int64_t> input;
    std::vector<int64_t> right;
    for (size_t other = 0; other < size; ++other) {
      send.push_back(count(rank, other));
      receive.push_back(count(other, rank));
      for (size_t i = 0; i < send.back(); ++i) input.push_back(value(rank, other, i));
      for (size_t i = 0; i < receive.back(); ++i) right.push_back(value(other, rank, i));
    }
    std::vector<int64_t> output(right.size());
    const Status status = context.call([&](Communicator& comm) {
      return comm.alltoall(input.data(), send, output.data(), receive, DType::kInt64, "all");
    });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(output == right);
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsSums) {
  const auto size = static_cast<size_t>(world_.size());
  for (const size_t count : {size_t{0}, size_t{1}, size_t{77}, kChunk / sizeof(float) / 2 + 5}) {
    std::vector<float> right = values<float>(0, count * size);
    for (int rank = 1; rank < world_.size(); ++rank) {
      const auto next = values<float>(rank, count * size);
      for (size_t i = 0; i < right.size(); ++i) right[i] = right[i] + next[i];
    }
    world_.run([&](engine::Context& context) {
      const auto rank = static_cast<size_t>(context.group().rank());
      const auto input = values<float>(context.group().rank(), count * size);
      std::vector<float> output(count);
      const Status status = context.call([&](Communicator& comm) {
        return comm.reduce_scatter(input.data(), output.data(), count, DType::kFloat32, Reduction::kSum, "");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(
          std::equal(output.begin(), output.end(), right.begin() + static_cast<ptrdiff_t>(rank * count)));
    });
  }
}

TEST_P(Collectives, GroupsRunAtTheSameTimeAsTheWhole) {
  const int size = world_.size();
  world_.run([&](engine::Context& context) {
    const int rank = context.group().rank();
    std::vector<int> even;
    std::vector<int> odd;
    for (int other = size - 1; other >= 0; --other) (other % 2 == 0 ? even : odd).push_back(other);
    std::unique_ptr<engine::Context> group;
    for (const auto& ranks : {even, odd}) {
      if (ranks.empty()) continue;
      auto made = context.split(ranks);
      ASSERT_TRUE(made.ok()) << made.status().message();
      if (made.value() != nullptr) group = std::move(made).value();
    }
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(group->group().job_rank(group->group().rank()), rank);
    const auto& ranks = rank % 2 == 0 ? even : odd;
    std::thread beside([&] {
      for (int round = 0; round < 100 * (1 + rank % 2);
           ++round) {  // the two groups make different numbers of calls
        int64_t value = rank;
        const Status status = group->call([&](Communicator& comm) {
          return comm.allreduce(&value, &value, 1, DType::kInt64, Reduction::kSum, "");
        });
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(value, std::accumulate(ranks.begin(), ranks.end(), 0));
      }
    });
    for (int round = 0; round < 100; ++round) {
      int32_t value = 1;
      const Status status = context.call([&](Communicator& comm) {
        return comm.allreduce(&value, &value, 1, DType::kInt32, Reduction::kSum, "");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(value, size);
    }
    beside.join();
    ASSERT_TRUE(context.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST_P(Collectives, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> come{0};
  world_.run([&](engine::Context& context) {
    for (int round = 1; round <= 50; ++round) {
      come.fetch_add(1);
      ASSERT_TRUE(context.call([](Communicator& comm) { return comm.barrier(""); }).ok());
      EXPECT_GE(come.load(), round * world_.size());
    }
  });
}

TEST_P(Collectives, MixInAnyOrderForManyRounds) {
  world_.run([&](engine::Context& context) {
    std::mt19937 common(3);  // the same calls everywhere
    const int rank = context.group().rank();
    for (int round = 0; round < 300; ++round) {
      const size_t count = common() % 50;
      const int root = static_cast<int>(common() % static_cast<uint32_t>(world_.size()));
      const auto kind = common() % 3;
      std::vector<int32_t> data(count, rank + round);
      std::vector<int32_t> all(count * static_cast<size_t>(world_.size()));
      const Status status = context.call([&](Communicator& comm) -> Status {
        if (kind == 0)
          return comm.allreduce(data.data(), data.data(), count, DType::kInt32, Reduction::kSum, "");
        if (kind == 1) return comm.broadcast(data.data(), count, DType::kInt32, root, "");
        const std::vector<uint64_t> counts(static_cast<size_t>(world_.size()), count);
        return comm.allgather(data.data(), all.data(), counts, DType::kInt32, "");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      const int n = world_.size();
      if (count == 0) continue;
      if (kind == 0) {
        ASSERT_EQ(data.back(), n * round + n * (n - 1) / 2);
      }
      if (kind == 1) {
        ASSERT_EQ(data.back(), root + round);
      }
      if (kind == 2) {
        ASSERT_EQ(all.back(), n - 1 + round);
      }
    }
  });
}

TNT_ON_RANKS(Collectives, 1, 2, 3, 9);
TNT_SPINNING(Collectives, 2);

using Disagreements = OnRanks;

/// All ranks must get a kMismatch whose text has `part`.
void expect_mismatch(World& world, const std::string& part,
                     const std::function<Status(Communicator&, int)>& operation) {
  world.run([&](engine::Context& context) {
    const int rank = context.group().rank();
    const Status status = context.call([&](Communicator& comm) { return operation(comm, rank); });
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    const Status after = context.call([](Communicator& comm) { return comm.barrier(""); });
    EXPECT_EQ(after.message(), status.message()) << "a failed job stays failed";
  });
}

TEST_P(Disagreements, InTheCountAreNamed) {
  expect_mismatch(world_,
                  "rank 1 called allreduce \"w\" of 4 x float32 (sum) while rank 0 called allreduce \"w\" of "
                  "3 x float32 (sum)",
                  [](Communicator& comm, int rank) {
                    std::vector<float> data(8);
                    return comm.allreduce(data.data(), data.data(), rank == 1 ? 4 : 3, DType::kFloat32,
                                          Reduction::kSum, "w");
                  });
}

TEST_P(Disagreements, InTheDTypeAreNamed) {
  expect_mismatch(
      world_,
      "rank 1 called allreduce \"w\" of 3 x int32 (sum) while rank 0 called allreduce \"w\" of 3 x "
      "float32 (sum)",
      [](Communicator& comm, int rank) {
        std::vector<float> data(3);
        return comm.allreduce(data.data(), data.data(), 3, rank == 1 ? DType::kInt32 : DType::kFloat32,
                              Reduction::kSum, "w");
      });
}

TEST_P(Disagreements, InTheReductionAreNamed) {
  expect_mismatch(world_,
                  "of 3 x float32 (max) while rank 0 called reduce_scatter \"w\" of 3 x float32 (min)",
                  [](Communicator& comm, int rank) {
                    const std::vector<float> input(3 * comm.size());
                    std::vector<float> output(3);
                    return comm.reduce_scatter(input.data(), output.data(), 3, DType::kFloat32,
                                               rank == 1 ? Reduction::kMax : Reduction::kMin, "w");
                  });
}

TEST_P(Disagreements, InTheRootAreNamed) {
  expect_mismatch(world_,
                  "of 3 x float32 from rank 1 while rank 0 called broadcast \"w\" of 3 x float32 from rank 0",
                  [](Communicator& comm, int rank) {
                    std::vector<float> data(3);
                    return comm.broadcast(data.data(), 3, DType::kFloat32, rank == 1 ? 1 : 0, "w");
                  });
}

TEST_P(Disagreements, InTheOrderOfCallsAreNamed) {
  expect_mismatch(world_,
                  "rank 1 called allreduce \"b\" of 3 x float32 (sum) while rank 0 called allreduce \"a\"",
                  [](Communicator& comm, int rank) {
                    std::vector<float> data(3);
                    for (const char* name : {rank == 1 ? "b" : "a", rank == 1 ? "a" : "b"}) {
                      TNT_RETURN_IF_ERROR(comm.allreduce(data.data(), data.data(), 3, DType::kFloat32,
                                                         Reduction::kSum, name));
                    }
                    return Status();
                  });
}

TEST_P(Disagreements, InTheOperationAreNamed) {
  expect_mismatch(world_, "rank 1 called barrier while rank 0 called broadcast of 1 x int64 from rank 0",
                  [](Communicator& comm, int rank) -> Status {
                    int64_t data = 0;
                    if (rank == 1) return comm.barrier("");
                    return comm.broadcast(&data, 1, DType::kInt64, 0, "");
                  });
}

TEST_P(Disagreements, InTheRanksOfAGroupAreNamed) {
  world_.run([&](engine::Context& context) {
    const auto made = context.split(context.group().rank() == 1 ? std::vector{0, 1} : std::vector{1, 0});
    EXPECT_EQ(made.status().code(), Code::kMismatch) << made.status().message();
    EXPECT_NE(made.status().message().find("group of 2 ranks"), std::string::npos);
  });
}

TEST_P(Disagreements, GroupsOfRanksThatDoNotExistAreRefused) {
  world_.run([&](engine::Context& context) {
    EXPECT_EQ(context.split({0, 99}).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(context.split({0, 0}).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(context.split({}).status().code(), Code::kInvalidArgument);
    EXPECT_TRUE(context.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST_P(Disagreements, AreFoundWithinAGroupAndNameTheJobsRanks) {
  world_.run([&](engine::Context& context) {
    const int last = world_.size() - 1;
    auto made = context.split({last, 0});
    ASSERT_TRUE(made.ok());
    if (made.value() == nullptr) return;
    const int rank = context.group().rank();
    const Status status = made.value()->call([&](Communicator& comm) -> Status {
      float value = 0;
      if (rank == 0) return comm.barrier("");
      return comm.allreduce(&value, &value, 1, DType::kFloat32, Reduction::kSum, "");
    });
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find(text("rank 0 called barrier while rank ", last, " called allreduce")),
              std::string::npos)
        << status.message();
  });
}

TEST_P(Disagreements, EndCallsOfSeveralGroupsInAnotherOrder) {
  std::atomic<int> named{0};
  world_.run([&](engine::Context& context) {
    auto made = context.split({0, 1});
    ASSERT_TRUE(made.ok());
    if (made.value() == nullptr) return;
    engine::Context& first = context.group().rank() == 0 ? context : *made.value();
    const Status status = first.call([](Communicator& comm) { return comm.barrier("b"); });
    EXPECT_FALSE(status.ok());  // the second to see it may find that the first has left
    if (status.message().find("the ranks wait for one another") != std::string::npos) ++named;
  });
  EXPECT_GE(named.load(), 1);
}

TEST_P(Disagreements, InTheTensorNameAreNamed) {
  expect_mismatch(world_, "\"loss\"", [](Communicator& comm, int rank) {
    float data = 0;
    return comm.allreduce(&data, &data, 1, DType::kFloat32, Reduction::kSum, rank == 0 ? "accuracy" : "loss");
  });
}

TEST_P(Disagreements, AnExceptionOfOneRankInACallEndsTheJobOnAll) {
  world_.run([&](engine::Context& context) {
    const bool throws = context.rank() == 1;
    const Status status = context.call([&](Communicator& comm) -> Status {
      if (throws) throw std::bad_alloc();
      return comm.barrier("");
    });
    EXPECT_EQ(status.code(), Code::kSystem);
    EXPECT_NE(status.message().find("rank 1 failed in a collective call: std::bad_alloc"), std::string::npos)
        << status.message();
  });
}

TEST_P(Disagreements, BadArgumentsAreRefusedBeforeAnythingIsSent) {
  world_.run([&](engine::Context& context) {
    float data = 0;
    for (const int root : {-1, world_.size()}) {
      const Status wrong = context.call(
          [&](Communicator& comm) { return comm.broadcast(&data, 1, DType::kFloat32, root, ""); });
      EXPECT_EQ(wrong.code(), Code::kInvalidArgument);
      EXPECT_NE(
          wrong.message().find(text("broadcast from rank ", root, ": ranks are 0 to ", world_.size() - 1)),
          std::string::npos)
          << wrong.message();
    }
    EXPECT_EQ(context
                  .call([&](Communicator& comm) {
                    return comm.allreduce(&data, &data, 1, static_cast<DType>(77), Reduction::kSum, "");
                  })
                  .code(),
              Code::kInvalidArgument);
    for (const auto& [dtype, reduction] : {std::pair{DType::kInt32, Reduction::kAverage},
                                           {DType::kFloat32, Reduction::kAnd},
                                           {DType::kBool, Reduction::kSum},
                                           {DType::kFloat32, static_cast<Reduction>(9)}}) {
      EXPECT_EQ(
          context
              .call([&](Communicator& comm) { return comm.allreduce(&data, &data, 1, dtype, reduction, ""); })
              .code(),
          Code::kInvalidArgument);
    }
    EXPECT_TRUE(context.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST_P(Disagreements, ElementsThatAreNotAlignedAreRefused) {
  world_.run([&](engine::Context& context) {
    alignas(8) std::array<std::byte, 24> memory{};
    for (const auto& [input, output] : {std::pair{1, 16}, {0, 17}}) {
      const Status refused = context.call([&, from = input, to = output](Communicator& comm) {
        return comm.allreduce(memory.data() + from, memory.data() + to, 1, DType::kFloat64, Reduction::kMax,
                              "");
      });
      EXPECT_EQ(refused.message(),
                "elements of float64 at an address that is not a multiple of 8; copy them");
    }
    EXPECT_TRUE(context.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST_P(Disagreements, MoreElementsThanMemoryHasAreRefused) {
  world_.run([&](engine::Context& context) {
    float data = 0;
    const auto call = [&](auto body) {
      const Status refused = context.call([&](Communicator& comm) -> Status { return body(comm); });
      EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused.message();
      EXPECT_TRUE(refused.message().ends_with("is too large for any memory")) << refused.message();
    };
    constexpr auto kMax = Reduction::kMax;
    constexpr auto kType = DType::kFloat32;
    for (const size_t most :
         {size_t{1} << 62, size_t{1} << 61, SIZE_MAX}) {  // 0 bytes, if nobody looked, ...
      std::vector<uint64_t> counts(static_cast<size_t>(world_.size()), most);
      call([&](Communicator& comm) { return comm.allreduce(&data, &data, most, kType, kMax, ""); });
      call([&](Communicator& comm) { return comm.broadcast(&data, most, kType, 0, ""); });
      call([&](Communicator& comm) { return comm.allgather(&data, nullptr, counts, kType, ""); });
      call([&](Communicator& comm) { return comm.reduce_scatter(&data, nullptr, most, kType, kMax, ""); });
      call([&](Communicator& comm) { return comm.alltoall(&data, counts, nullptr, counts, kType, ""); });
    }
    EXPECT_TRUE(context.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST_P(Disagreements, InTheCountsOfAnAllgatherAreNamed) {
  expect_mismatch(world_, "with other sizes or ranks", [this](Communicator& comm, int rank) {
    std::vector<uint64_t> counts(static_cast<size_t>(world_.size()), 2);
    counts[0] = rank == 1 ? 1 : 2;
    counts[1] = rank == 1 ? 3 : 2;
    std::vector<float> data(100);
    return comm.allgather(data.data(), data.data() + 10, counts, DType::kFloat32, "g");
  });
}

TEST_P(Disagreements, InTheCountsOfAnAlltoallAreNamed) {
  expect_mismatch(world_, "expects 7 elements from rank 1, which sends 2",
                  [this](Communicator& comm, int rank) {
                    const std::vector<uint64_t> send(static_cast<size_t>(world_.size()), 2);
                    std::vector<uint64_t> receive = send;
                    if (rank == 0) receive[1] = 7;
                    std::vector<float> data(100);
                    const Status status =
                        comm.alltoall(data.data(), send, data.data() + 50, receive, DType::kFloat32, "a");
                    return status.ok() ? comm.compare_call({})
                                       : status;  // a rank that saw no difference learns it at the next call
                  });
}

TNT_ON_RANKS(Disagreements, 2, 3);

}  // namespace
}  // namespace tarantella::collective
