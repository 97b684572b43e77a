// What calls cost, in meetings, for any number of ranks, and their bits around the sizes at which the way changes.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "collective/chunking.h"
#include "collective/kernels.h"
#include "made_data.h"
#include "world.h"

namespace tarantella::collective {
namespace {

constexpr size_t kKiB = 1024;
using Bytes = std::vector<std::byte>;

size_t ceil_of(size_t a, size_t b) { return (a + b - 1) / b; }

class ManyRanks : public testing::TestWithParam<int> {
 protected:
  size_t size() const { return static_cast<size_t>(GetParam()); }

  /// Runs body(comm) on one thread a rank.
  void run(const std::function<void(NodeCommunicator&)>& body) {
    world_.run_memories([&](int, std::unique_ptr<transport::NodeMemory> memory) {
      const auto group = NodeGroup::create(std::move(memory), world_.options());
      ASSERT_TRUE(group.ok()) << group.status().message();
      const auto comm = NodeCommunicator::create(group.value());
      ASSERT_TRUE(comm.ok()) << comm.status().message();
      body(*comm.value());
    });
  }

  /// The number of meetings in `call`, which must succeed.
  template <typename Call>
  static size_t meetings(NodeCommunicator& comm, Call call) {
    return growth([&] { return comm.staging().round(); }, call);
  }

  /// The bytes of other ranks that `call` reads, which must succeed.
  template <typename Call>
  static size_t bytes_read(NodeCommunicator& comm, Call call) {
    return growth([&] { return comm.staging().bytes_read(); }, call);
  }

  /// By how much `count` grows in `call`, which must succeed.
  template <typename Count, typename Call>
  static size_t growth(Count count, Call call) {
    const auto before = count();
    const Status status = call();
    EXPECT_TRUE(status.ok()) << status.message();
    return count() - before;
  }

  /// The reduction of all ranks' bytes, by one call of the kernel.
  Bytes reduced(DType dtype, Reduction reduction, size_t bytes) const {
    std::vector<Bytes> inputs;
    std::vector<const std::byte*> pointers;
    for (size_t rank = 0; rank < size(); ++rank) inputs.push_back(made_bytes(rank, bytes));
    for (const Bytes& input : inputs) pointers.push_back(input.data());
    Bytes right(bytes + 1);  // has an address even if it is empty
    reduce(dtype, reduction, pointers.data(), size(), right.data(), bytes / size_of(dtype));
    return right;
  }

  std::vector<DType> dtypes() const {
    if (size() > 9) return {DType::kFloat32};
    return {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt8};
  }

  World world_{"fake", GetParam()};
};

TEST_P(ManyRanks, AnAllreduceMeetsTwiceAChunkAndGivesTheBitsOfOneKernel) {
  const size_t chunk = chunk_bytes(size());
  const size_t small = std::min(sliced_from(size()), chunk);
  std::vector<size_t> sizes = {small, chunk};
  if (size() <= 16) sizes.insert(sizes.end(), {chunk + small, 2 * chunk});
  const size_t most = sizes.back() + 8;
  std::vector<std::pair<DType, Reduction>> kinds;
  for (const DType dtype : dtypes()) kinds.emplace_back(dtype, Reduction::kSum);
  kinds.insert(kinds.end(), {{DType::kBFloat16, Reduction::kAverage}, {DType::kFloat32, Reduction::kMax}});
  for (const auto& [dtype, reduction] : kinds) {
    const size_t element = size_of(dtype);
    const Bytes right = reduced(dtype, reduction, most);
    run([&, dtype, reduction](NodeCommunicator& comm) {
      const Bytes input = made_bytes(static_cast<size_t>(comm.rank()), most);
      Bytes output(most);
      for (const size_t around : reduction == Reduction::kSum ? sizes : std::vector{small}) {
        for (const size_t count : {around / element - 1, around / element, around / element + 1}) {
          const size_t bytes = count * element;
          const size_t met = meetings(
              comm, [&] { return comm.allreduce(input.data(), output.data(), count, dtype, reduction, ""); });
          const auto of_chunk = [&](size_t part) { return part >= sliced_from(size()) ? 2u : 1u; };
          const size_t rest = bytes % chunk;
          EXPECT_EQ(met, bytes / chunk * of_chunk(chunk) + (rest == 0 ? 0 : of_chunk(rest))) << bytes;
          EXPECT_EQ(std::memcmp(output.data(), right.data(), bytes), 0)
              << bytes << " bytes of " << name_of(dtype);
        }
      }
    });
  }
}

// docs/performance.md states these.
TEST_P(ManyRanks, ARankReadsAsManyBytesOfOthersAsTheFormulasSay) {
  constexpr DType kType = DType::kFloat32;
  const size_t others = size() - 1;
  const size_t each = chunk_bytes(size()) / size() / 64 * 64;  // whole cache lines for each rank
  const size_t bytes = size() * each;
  const size_t inline_bytes =
      std::min(sliced_from(size()), chunk_bytes(size())) / sizeof(float) * sizeof(float) - sizeof(float);
  run([&](NodeCommunicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const Bytes input(bytes);
    Bytes output(bytes);
    const auto read_by_allreduce = [&](size_t length) {
      return bytes_read(comm, [&] {
        return comm.allreduce(input.data(), output.data(), length / sizeof(float), kType, Reduction::kSum,
                              "");
      });
    };
    EXPECT_EQ(read_by_allreduce(bytes), 2 * bytes / size() * others);
    EXPECT_EQ(read_by_allreduce(inline_bytes), inline_bytes * others);
    EXPECT_LT(inline_bytes * others, 32 * kKiB);
    EXPECT_EQ(read_by_allreduce(sizeof(float)), sizeof(float) * others);
    EXPECT_EQ(bytes_read(comm,
                         [&] {
                           return comm.reduce_scatter(input.data(), output.data(), each / sizeof(float),
                                                      kType, Reduction::kSum, "");
                         }),
              bytes / size() * others);
    EXPECT_EQ(bytes_read(comm, [&] { return comm.broadcast(output.data(), bytes, DType::kUInt8, 0, ""); }),
              rank == 0 ? 0 : bytes);
    const std::vector<uint64_t> counts(size(), each);
    EXPECT_EQ(
        bytes_read(comm,
                   [&] { return comm.allgather(input.data(), output.data(), counts, DType::kUInt8, ""); }),
        bytes / size() * others);
    EXPECT_EQ(
        bytes_read(
            comm,
            [&] { return comm.alltoall(input.data(), counts, output.data(), counts, DType::kUInt8, ""); }),
        bytes / size() * others);
  });
}

TEST_P(ManyRanks, InlineBytesAreInTheLinesOfARoundAndInAThirdAsManyOfRelays) {
  std::atomic<size_t> heard{0};
  run([&](NodeCommunicator& comm) {
    const FlagGroups& flag_groups = comm.group().flag_groups();
    const auto line_of = [&](int rank) {
      return reinterpret_cast<uintptr_t>(
                 comm.staging().peer_chunk(static_cast<size_t>(rank), sizeof(float))) /
             64;
    };
    for (int call = 0; call < 50; ++call) {
      float value = 1;
      EXPECT_TRUE(comm.allreduce(&value, &value, 1, DType::kFloat32, Reduction::kSum, "").ok());
      size_t lines = flag_groups.ranks(flag_groups.group_of(comm.rank())).size() - 1;
      size_t relays = 0;
      for (size_t flag_group = 0; flag_group < flag_groups.count(); ++flag_group) {
        if (flag_group == flag_groups.group_of(comm.rank())) continue;
        std::set<uintptr_t> its;
        for (const int rank : flag_groups.ranks(flag_group)) its.insert(line_of(rank));
        const bool relayed = its.size() < flag_groups.ranks(flag_group).size();
        relays += relayed ? 1 : 0;
        lines += 1 + its.size();  // and the one with the flag
        if (relayed) {
          EXPECT_LE(its.size(), ceil_of(flag_groups.largest(), 4));
        }
      }
      if (relays != flag_groups.count() - 1) continue;  // a flag group was late
      ++heard;
      if (size() <= 8) {
        EXPECT_EQ(lines, size() - 1);
      } else if (size() == 64) {
        EXPECT_EQ(lines, 28u);
      } else {
        EXPECT_LT(lines, size());
      }
    }
  });
  EXPECT_GT(heard.load(), 0u);
}

TEST_P(ManyRanks, ABroadcastAndAnAllgatherMeetOnceAChunk) {
  const size_t chunk = chunk_bytes(size());
  run([&](NodeCommunicator& comm) {
    for (const size_t bytes : {size_t{0}, size_t{1}, chunk, chunk + 1}) {
      Bytes data(bytes + 1);
      EXPECT_EQ(meetings(comm, [&] { return comm.broadcast(data.data(), bytes, DType::kUInt8, 0, ""); }),
                std::max<size_t>(ceil_of(bytes, chunk), 1));
      std::vector<uint64_t> counts(size(), 3);
      counts[1] = bytes;
      const size_t own = counts[static_cast<size_t>(comm.rank())];
      const Bytes input(own + 1);
      Bytes output(bytes + 3 * size());
      EXPECT_EQ(
          meetings(comm,
                   [&] { return comm.allgather(input.data(), output.data(), counts, DType::kUInt8, ""); }),
          std::max<size_t>(ceil_of(bytes, chunk), 1));
    }
  });
}

TEST_P(ManyRanks, EachReducesInEveryMeetingOfAReduceScatter) {
  const size_t piece = bytes_per_rank(size());
  EXPECT_LE(size() * piece, chunk_bytes(size()));
  EXPECT_GT(size() * (piece + 64), chunk_bytes(size()));
  const size_t element = size_of(DType::kFloat32);
  std::vector<size_t> counts = {1, piece / element + 1};
  if (size() <= 16)
    counts.insert(counts.end(), {0, piece / element - 1, piece / element, 3 * piece / element});
  for (const size_t count : counts) {
    const size_t each = count * element;
    const Bytes right = reduced(DType::kFloat32, Reduction::kSum, size() * each);
    run([&](NodeCommunicator& comm) {
      const auto rank = static_cast<size_t>(comm.rank());
      const Bytes input = made_bytes(rank, size() * each);
      Bytes output(each + 1);
      const size_t met = meetings(comm, [&] {
        return comm.reduce_scatter(input.data(), output.data(), count, DType::kFloat32, Reduction::kSum, "");
      });
      EXPECT_EQ(met, std::max<size_t>(ceil_of(each, piece),
                                      1));  // not of size() * each: one target after the other
      EXPECT_EQ(std::memcmp(output.data(), right.data() + rank * each, each), 0) << each << " bytes";
    });
  }
}

TEST_P(ManyRanks, EachGetsItsShareInEveryMeetingOfAnAlltoall) {
  const size_t capacity = chunk_bytes(size());
  const auto shares = [this](uint64_t count) { return std::vector<uint64_t>(size(), count); };
  EXPECT_EQ(rounds_of_shares(shares(0), capacity), 1u);
  EXPECT_EQ(rounds_of_shares(shares(capacity / size()), capacity), 1u);
  EXPECT_EQ(rounds_of_shares(shares(capacity / size() + 1), capacity), 2u);
  EXPECT_EQ(rounds_of_shares(shares(3 * (capacity / size())), capacity), 3u);
  std::vector<uint64_t> uneven = shares(0);
  uneven[0] = 5 * capacity;
  uneven[1] = 1;
  EXPECT_EQ(rounds_of_shares(uneven, capacity), 6u);
  EXPECT_EQ(rounds_of_shares(shares(1'000'000'000), size()), 1'000'000'000u);

  // rank 0 sends much to rank 1 and everybody a little; the others send even parts
  const size_t even = capacity / size() + 1;
  const auto count = [&](size_t from, size_t to) {
    return from != 0 ? even : to == 1 ? 2 * capacity : to + 1;
  };
  std::vector<Bytes> inputs;
  std::vector<Bytes> right(size());  // per rank
  for (size_t from = 0; from < size(); ++from) {
    size_t sent = 0;
    for (size_t to = 0; to < size(); ++to) sent += count(from, to);
    inputs.push_back(made_bytes(from, sent));
    auto begin = inputs.back().begin();
    for (size_t to = 0; to < size(); ++to) {
      const auto end = begin + static_cast<ptrdiff_t>(count(from, to));
      right[to].insert(right[to].end(), begin, end);
      begin = end;
    }
  }
  run([&](NodeCommunicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    std::vector<uint64_t> send;
    std::vector<uint64_t> receive;
    for (size_t other = 0; other < size(); ++other) {
      send.push_back(count(rank, other));
      receive.push_back(count(other, rank));
    }
    Bytes output(right[rank].size());
    const size_t met = meetings(comm, [&] {
      return comm.alltoall(inputs[rank].data(), send, output.data(), receive, DType::kInt8, "");
    });
    EXPECT_EQ(met, 1 + 3u);  // one for the counts
    EXPECT_TRUE(output == right[rank]);
  });
}

TEST_P(ManyRanks, ARankWakesAllOthersAtOnceTwiceABucket) {
  if (world_.size() < 8) GTEST_SKIP() << "one wake-up for each other rank would hardly be more";
  constexpr size_t kSteps = 10, kBuckets = 3;
  const std::vector<engine::TensorSpec> tensors(kBuckets, {"w", DType::kFloat32, {100}});
  world_.run([&](engine::Context& context) {
    const int rank = context.group().rank();
    const auto plan = context.add_plan("p", tensors, 0);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::vector<std::vector<float>> gradients(kBuckets, std::vector<float>(100));
    std::vector<void*> pointers;
    for (auto& each : gradients) pointers.push_back(each.data());
    const size_t before = world_.node().wakes(rank);
    for (size_t step = 0; step < kSteps; ++step)
      ASSERT_TRUE(plan.value()->run(pointers.data(), nullptr, pointers.data()).ok());
    EXPECT_LE(world_.node().wakes(rank) - before, 2 * kBuckets * kSteps);
  });
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const auto sizes = testing::Values(3);
#else
const auto sizes = testing::Values(2, 3, 8, 9, 16, 64);
#endif
INSTANTIATE_TEST_SUITE_P(Sizes, ManyRanks, sizes, testing::PrintToStringParamName());

}  // namespace
}  // namespace tarantella::collective
