#include <atomic>
#include <cstring>
#include <random>

#include "collective/operations.h"
#include "world.h"

namespace tarantella::collective {
namespace {

template <typename T>
std::vector<T> values(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank) * 7919 + 1);
  std::vector<T> data(count);
  for (T& value : data) value = static_cast<T>(static_cast<double>(random()) / 1e6);
  return data;
}

using Collectives = OnRanks;

template <typename T>
void expect_sums(World& world, DType dtype) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, 3 * Exchange::kChunk / sizeof(T) + 5}) {
    std::vector<T> right = values<T>(0, count);
    for (int rank = 1; rank < world.size(); ++rank) {
      const auto next = values<T>(rank, count);
      for (size_t i = 0; i < count; ++i) right[i] = right[i] + next[i];
    }
    world.run([&](engine::Engine& engine) {
      const auto input = values<T>(engine.group().rank(), count);
      auto output = input;
      const Status status = engine.call([&](Exchange& exchange) {
        return allreduce(exchange, output.data(), output.data(), count, dtype, "sums");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(output == right) << count << " elements";
    });
  }
}

TEST_P(Collectives, AllreduceFloat32) { expect_sums<float>(world_, DType::kFloat32); }
TEST_P(Collectives, AllreduceFloat64) { expect_sums<double>(world_, DType::kFloat64); }
TEST_P(Collectives, AllreduceInt32) { expect_sums<int32_t>(world_, DType::kInt32); }
TEST_P(Collectives, AllreduceInt64) { expect_sums<int64_t>(world_, DType::kInt64); }

TEST_P(Collectives, BroadcastFromEveryRoot) {
  const size_t count = Exchange::kChunk / sizeof(double) + 3;
  world_.run([&](engine::Engine& engine) {
    for (int root = 0; root < world_.size(); ++root) {
      auto data = values<double>(engine.group().rank(), count);
      const Status status = engine.call([&](Exchange& exchange) {
        return broadcast(exchange, data.data(), count, DType::kFloat64, root, "from each");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(data == values<double>(root, count));
    }
  });
}

TEST_P(Collectives, AllgatherInRankOrder) {
  const size_t count = 2 * Exchange::kChunk / sizeof(int64_t) + 1;
  world_.run([&](engine::Engine& engine) {
    const auto own = values<int64_t>(engine.group().rank(), count);
    std::vector<int64_t> all(count * static_cast<size_t>(world_.size()));
    const Status status = engine.call([&](Exchange& exchange) {
      return allgather(exchange, own.data(), all.data(), count, DType::kInt64, "all");
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

TEST_P(Collectives, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> come{0};
  world_.run([&](engine::Engine& engine) {
    for (int round = 1; round <= 50; ++round) {
      come.fetch_add(1);
      ASSERT_TRUE(engine.call([](Exchange& exchange) { return barrier(exchange, ""); }).ok());
      EXPECT_GE(come.load(), round * world_.size());
    }
  });
}

TEST_P(Collectives, MixInAnyOrderForManyRounds) {
  world_.run([&](engine::Engine& engine) {
    std::mt19937 common(3);  // the same calls everywhere
    const int rank = engine.group().rank();
    for (int round = 0; round < 300; ++round) {
      const size_t count = common() % 50;
      const int root = static_cast<int>(common() % static_cast<uint32_t>(world_.size()));
      const auto kind = common() % 3;
      std::vector<int32_t> data(count, rank + round);
      std::vector<int32_t> all(count * static_cast<size_t>(world_.size()));
      const Status status = engine.call([&](Exchange& exchange) -> Status {
        if (kind == 0) return allreduce(exchange, data.data(), data.data(), count, DType::kInt32, "");
        if (kind == 1) return broadcast(exchange, data.data(), count, DType::kInt32, root, "");
        return allgather(exchange, data.data(), all.data(), count, DType::kInt32, "");
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

TNT_ON_RANKS(Collectives, 1, 2, 3, 4, 5, 9);

using Disagreements = OnRanks;

/// All ranks must get a kMismatch whose text has `part`.
void expect_mismatch(World& world, const std::string& part,
                     const std::function<Status(Exchange&, int)>& operation) {
  world.run([&](engine::Engine& engine) {
    const int rank = engine.group().rank();
    const Status status = engine.call([&](Exchange& exchange) { return operation(exchange, rank); });
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    const Status after = engine.call([](Exchange& exchange) { return barrier(exchange, ""); });
    EXPECT_EQ(after.message(), status.message()) << "a failed job stays failed";
  });
}

TEST_P(Disagreements, InCount) {
  expect_mismatch(
      world_,
      "rank 1 called allreduce \"w\" of 4 x float32 while rank 0 called allreduce \"w\" of 3 x float32",
      [](Exchange& exchange, int rank) {
        std::vector<float> data(8);
        return allreduce(exchange, data.data(), data.data(), rank == 1 ? 4 : 3, DType::kFloat32, "w");
      });
}

TEST_P(Disagreements, InOperation) {
  expect_mismatch(world_, "rank 1 called barrier while rank 0 called broadcast of 1 x int64 from rank 0",
                  [](Exchange& exchange, int rank) -> Status {
                    int64_t data = 0;
                    if (rank == 1) return barrier(exchange, "");
                    return broadcast(exchange, &data, 1, DType::kInt64, 0, "");
                  });
}

TEST_P(Disagreements, InName) {
  expect_mismatch(world_, "\"loss\"", [](Exchange& exchange, int rank) {
    float data = 0;
    return allreduce(exchange, &data, &data, 1, DType::kFloat32, rank == 0 ? "accuracy" : "loss");
  });
}

TEST_P(Disagreements, BadArgumentsAreRefusedBeforeAnythingIsSent) {
  world_.run([&](engine::Engine& engine) {
    float data = 0;
    EXPECT_EQ(
        engine.call([&](Exchange& e) { return broadcast(e, &data, 1, DType::kFloat32, 99, ""); }).code(),
        Code::kInvalidArgument);
    EXPECT_EQ(
        engine.call([&](Exchange& e) { return allreduce(e, &data, &data, 1, static_cast<DType>(77), ""); })
            .code(),
        Code::kInvalidArgument);
    EXPECT_TRUE(engine.call([](Exchange& e) { return barrier(e, ""); }).ok());
  });
}

TNT_ON_RANKS(Disagreements, 2, 3);

}  // namespace
}  // namespace tarantella::collective
