// The blocking collectives of jobs on several nodes: results, bits, disagreements, what they send, and the ends of
// nodes, over a network that delays, reorders and is cut.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <random>

#include "base/round.h"
#include "cluster.h"
#include "collective/chunking.h"
#include "collective/kernels.h"
#include "made_data.h"

namespace tarantella::collective::internode {
namespace {

using engine::Context;
using Bytes = std::vector<std::byte>;

class InternodeCollectives : public testing::TestWithParam<std::string> {
 protected:
  const std::vector<int>& node_of() const { return kLayouts.at(GetParam()); }
};

/// The reduction of all ranks' bytes: within each node in rank order, then in the order of nodes.
Bytes reduced(const NodeMap& nodes, DType dtype, Reduction reduction, size_t count) {
  const size_t wide = count * size_of(partial_dtype(dtype));
  std::vector<Bytes> partials;
  for (size_t node = 0; node < nodes.count(); ++node) {
    std::vector<Bytes> inputs;
    std::vector<const std::byte*> pointers;
    for (const int rank : nodes.ranks_of(node)) inputs.push_back(made_bytes(rank, count * size_of(dtype)));
    for (const Bytes& each : inputs) pointers.push_back(each.data());
    partials.emplace_back(wide + 1);
    reduce_to_partial(dtype, reduction, pointers.data(), pointers.size(), partials.back().data(), count);
  }
  std::vector<const std::byte*> pointers;
  for (const Bytes& each : partials) pointers.push_back(each.data());
  Bytes right(count * size_of(dtype) + 1);
  reduce_partials(dtype, reduction, pointers.data(), pointers.size(), nodes.ranks(), right.data(), count);
  return right;
}

TEST_P(InternodeCollectives, AnAllreduceGivesTheBitsOfTheLayout) {
  const std::vector<std::pair<DType, Reduction>> kinds = {
      {DType::kFloat32, Reduction::kSum},      {DType::kFloat32, Reduction::kAverage},
      {DType::kFloat64, Reduction::kAverage},  {DType::kFloat16, Reduction::kSum},
      {DType::kBFloat16, Reduction::kAverage}, {DType::kInt32, Reduction::kSum},
      {DType::kUInt8, Reduction::kMax},
  };
  FakeCluster cluster(node_of());
  const size_t chunk = chunk_bytes(1);
  const size_t inline_bytes = inline_limit(cluster.nodes());
  for (const auto& [dtype, reduction] : kinds) {
    const size_t element = size_of(dtype);
    const size_t most = (inline_bytes + 2 * chunk) / element + 3;
    const Bytes right = reduced(cluster.nodes(), dtype, reduction, most);
    FakeCluster job(node_of(), static_cast<uint64_t>(dtype));
    job.run([&, dtype = dtype, reduction = reduction](Context& rank) {
      const Bytes input = made_bytes(rank.rank(), most * element);
      for (const size_t count : {size_t{0}, size_t{1}, inline_bytes / element, inline_bytes / element + 1,
                                 chunk / element, most}) {
        Bytes output(count * element + 1);
        std::copy_n(input.begin(), count * element, output.begin());
        const Status status = rank.call([&](Communicator& comm) {
          return comm.allreduce(output.data(), output.data(), count, dtype, reduction, "sums");
        });
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(std::memcmp(output.data(), right.data(), count * element), 0)
            << count << " x " << name_of(dtype) << ", " << name_of(reduction);
        Bytes apart(count * element + 1);
        const Status again = rank.call([&](Communicator& comm) {
          return comm.allreduce(input.data(), apart.data(), count, dtype, reduction, "sums");
        });
        ASSERT_TRUE(again.ok()) << again.message();
        EXPECT_TRUE(apart == output) << "with another output";
      }
      EXPECT_TRUE(input == made_bytes(rank.rank(), most * element));
    });
  }
}

TEST_P(InternodeCollectives, AnAllreduceOfManyChunksGivesTheBitsOfTheLayout) {
  // the last chunk has some of the bytes, or fewer than a line for each node
  for (const size_t bytes : {(size_t{9} << 20) + 12, (size_t{8} << 20) + (size_t{64} << 10) + 4}) {
    FakeCluster cluster(node_of(), 8);
    const size_t count = bytes / sizeof(float);
    const Bytes right = reduced(cluster.nodes(), DType::kFloat32, Reduction::kAverage, count);
    cluster.run([&](Context& rank) {
      Bytes data = made_bytes(rank.rank(), count * sizeof(float));
      const Status status = rank.call([&](Communicator& comm) {
        return comm.allreduce(data.data(), data.data(), count, DType::kFloat32, Reduction::kAverage, "");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(std::memcmp(data.data(), right.data(), count * sizeof(float)), 0);
    });
  }
}

TEST_P(InternodeCollectives, ABroadcastComesFromEveryRoot) {
  FakeCluster cluster(node_of(), 3);
  const size_t many = std::max(chunk_bytes(1), inline_limit(cluster.nodes())) + 70'000;
  cluster.run([&](Context& rank) {
    for (int root = 0; root < cluster.size(); ++root) {
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{5000}, many}) {
        Bytes data = made_bytes(rank.rank(), bytes + 1);
        const Status status = rank.call([&](Communicator& comm) {
          return comm.broadcast(data.data(), bytes, DType::kUInt8, root, "weights");
        });
        ASSERT_TRUE(status.ok()) << status.message();
        const Bytes right = made_bytes(root, bytes);
        EXPECT_TRUE(std::equal(right.begin(), right.end(), data.begin())) << bytes << " bytes from " << root;
      }
    }
  });
}

TEST_P(InternodeCollectives, AnAllgatherJoinsInRankOrder) {
  FakeCluster cluster(node_of(), 6);
  const size_t size = cluster.nodes().ranks();
  const size_t many = inline_limit(cluster.nodes()) + 1;
  const std::vector<std::vector<size_t>> lengths = {{0}, {1}, {2000}, {3, 0, 90'001}, {30'000}, {many}};
  cluster.run([&](Context& rank) {
    for (const auto& pattern : lengths) {
      std::vector<uint64_t> counts;
      Bytes right;
      for (size_t other = 0; other < size; ++other) {
        counts.push_back(pattern[other % pattern.size()]);
        const Bytes part = made_bytes(static_cast<int>(other), counts.back());
        right.insert(right.end(), part.begin(), part.end());
      }
      const Bytes own = made_bytes(rank.rank(), counts[static_cast<size_t>(rank.rank())]);
      Bytes all(right.size());
      const Status status = rank.call([&](Communicator& comm) {
        return comm.allgather(own.empty() ? nullptr : own.data(), all.data(), counts, DType::kUInt8, "rows");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(all == right);
    }
  });
}

TEST_P(InternodeCollectives, AReduceScatterGivesEachRankTheBitsOfAnAllreduce) {
  for (const auto& [dtype, reduction] :
       {std::pair{DType::kFloat32, Reduction::kSum}, {DType::kBFloat16, Reduction::kAverage}}) {
    FakeCluster cluster(node_of(), 7);
    const size_t size = cluster.nodes().ranks();
    const size_t element = size_of(dtype);
    cluster.run([&, dtype = dtype, reduction = reduction](Context& rank) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, 20'000 / element, 90'000 / element}) {
        const Bytes right = reduced(cluster.nodes(), dtype, reduction, count * size);
        const Bytes input = made_bytes(rank.rank(), count * size * element);
        Bytes output(count * element + 1);
        const Status status = rank.call([&](Communicator& comm) {
          return comm.reduce_scatter(input.data(), output.data(), count, dtype, reduction, "shards");
        });
        ASSERT_TRUE(status.ok()) << status.message();
        const auto* const mine = right.data() + static_cast<size_t>(rank.rank()) * count * element;
        EXPECT_EQ(std::memcmp(output.data(), mine, count * element), 0) << count << " x " << name_of(dtype);
      }
    });
  }
}

TEST_P(InternodeCollectives, NobodyLeavesABarrierBeforeAllHaveCome) {
  FakeCluster cluster(node_of(), 4);
  std::atomic<int> come{0};
  cluster.run([&](Context& rank) {
    for (int round = 1; round <= 20; ++round) {
      come.fetch_add(1);
      const Status status = rank.call([](Communicator& comm) { return comm.barrier(""); });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_GE(come.load(), round * cluster.size());
    }
  });
}

TEST_P(InternodeCollectives, CallsMixInAnyOrder) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    FakeCluster cluster(node_of(), seed);
    const int n = cluster.size();
    cluster.run([&](Context& rank) {
      std::mt19937_64 common(seed);  // the same calls everywhere
      for (int round = 0; round < 60; ++round) {
        const size_t count = common() % (round % 10 == 0 ? 60'000 : 200) + 1;
        const int root = static_cast<int>(common() % static_cast<uint64_t>(n));
        const bool sums = common() % 2 == 0;
        std::vector<int32_t> data(count, rank.rank() + round);
        const Status status = rank.call([&](Communicator& comm) -> Status {
          if (sums)
            return comm.allreduce(data.data(), data.data(), count, DType::kInt32, Reduction::kSum, "");
          return comm.broadcast(data.data(), count, DType::kInt32, root, "");
        });
        ASSERT_TRUE(status.ok()) << status.message();
        const int right = sums ? n * round + n * (n - 1) / 2 : root + round;
        EXPECT_EQ(std::count(data.begin(), data.end(), right), static_cast<ptrdiff_t>(count))
            << "seed " << seed;
      }
    });
  }
}

TEST_P(InternodeCollectives, AnAlltoallGivesEachRankItsShares) {
  FakeCluster cluster(node_of(), 11);
  const auto size = static_cast<size_t>(cluster.size());
  const auto count = [](size_t from, size_t to) {
    return static_cast<uint64_t>((from * 3 + to * 5) % 4 * 900);
  };
  cluster.run([&](Context& rank) {
    const auto own = static_cast<size_t>(rank.rank());
    std::vector<uint64_t> sends, receives;
    std::vector<int32_t> input, right;
    for (size_t other = 0; other < size; ++other) {
      sends.push_back(count(own, other));
      receives.push_back(count(other, own));
      input.insert(input.end(), sends.back(), static_cast<int32_t>(own * 100 + other));
      right.insert(right.end(), receives.back(), static_cast<int32_t>(other * 100 + own));
    }
    std::vector<int32_t> output(right.size());
    const Status status = rank.call([&](Communicator& comm) {
      return comm.alltoall(input.data(), sends, output.data(), receives, DType::kInt32, "shares");
    });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(output, right);
  });
}

TEST_P(InternodeCollectives, APostOfRankZeroReachesAllThatAwaitIt) {
  FakeCluster cluster(node_of(), 12);
  cluster.link_options().status_every = 20ms;
  cluster.run([&](Context& rank) {
    const auto enter_barrier = [&] { return rank.call([](Communicator& comm) { return comm.barrier(""); }); };
    for (uint32_t round = 1; round <= 2; ++round) {
      ASSERT_TRUE(enter_barrier().ok());
      if (rank.rank() == 0) {
        EXPECT_TRUE(rank.notify("save", round).ok());
        EXPECT_TRUE(rank.notify("log", 100 + round).ok());
        EXPECT_TRUE(rank.notify("save", 10 * round).ok());
        continue;
      }
      for (const uint32_t right : {round, 10 * round}) {
        const auto notification = rank.wait_notification(0, "save");
        ASSERT_TRUE(notification.ok()) << notification.status().message();
        EXPECT_EQ(notification.value(), right);
      }
    }
    ASSERT_TRUE(enter_barrier().ok());
  });
}

TEST(InternodePosts, TheLastPostIsFoundAtAnyTime) {
  FakeCluster cluster({0, 1, 1});
  cluster.link_options().status_every = 20ms;
  cluster.run([&](Context& rank) {
    const auto enter_barrier = [&] {
      return rank.call([](Communicator& comm) { return comm.barrier("next"); });
    };
    for (uint32_t round = 1; round < 4; ++round) {
      if (rank.rank() == 0) {
        EXPECT_TRUE(rank.notify("save", round).ok());
      } else {
        while (rank.find_notification(0, "save").value() != round) std::this_thread::yield();
        EXPECT_FALSE(rank.find_notification(0, "other").value());
      }
      ASSERT_TRUE(enter_barrier().ok());
    }
    if (rank.rank() == 0) {
      EXPECT_EQ(rank.find_notification(2, "save").status().code(), Code::kInvalidArgument);
    }
  });
}

TEST(InternodePosts, ARankThatGoesOnWithoutThePostIsNamed) {
  FakeCluster cluster({0, 1, 1});
  cluster.link_options().status_every = 20ms;
  cluster.run([&](Context& rank) {
    const auto enter_barrier = [&] {
      return rank.call([](Communicator& comm) { return comm.barrier("next"); });
    };
    ASSERT_TRUE(enter_barrier().ok());
    if (rank.rank() == 0) {
      EXPECT_TRUE(rank.notify("other", 1).ok());
    } else {
      const auto notification = rank.wait_notification(0, "save");
      EXPECT_EQ(notification.status().code(), Code::kMismatch);
      EXPECT_NE(notification.status().message().find("waits in save: rank 0 has continued without it"),
                std::string::npos)
          << notification.status().message();
    }
    EXPECT_TRUE(enter_barrier().ok());
  });
}

TEST(InternodePosts, ARankWhoseOwnLeaderHasLeftIsToldSo) {
  FakeCluster cluster({0, 1, 1});
  std::atomic<bool> ended{false};
  cluster.run([&](Context& rank) {
    ASSERT_TRUE(rank.call([](Communicator& comm) { return comm.barrier(""); }).ok());
    if (rank.rank() == 1) return;
    if (rank.rank() == 0) {
      while (!ended.load()) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto notification = rank.wait_notification(0, "save");
    ended = true;
    EXPECT_EQ(notification.status().code(), Code::kPeerLost);
    EXPECT_NE(
        notification.status().message().find("rank 2 waits in save: rank 1 has ended; make the same calls"),
        std::string::npos)
        << notification.status().message();
  });
}

TEST(InternodePosts, AreNotAwaitedWhileTheProgressThreadIsStuckInTheEndpoint) {
  FakeCluster cluster({0, 1});
  cluster.options().stuck_timeout = 2s;
  std::atomic<bool> over{false};
  const Deadline limit = Deadline::after(10s);
  cluster.run([&](Context& rank) {
    ASSERT_TRUE(rank.call([](Communicator& comm) { return comm.barrier(""); }).ok());
    if (rank.rank() == 1) {
      cluster.network().stop(1);
      const auto notification = rank.wait_notification(0, "save");
      EXPECT_EQ(notification.status().code(), Code::kTimeout);
      EXPECT_NE(notification.status().message().find("rank 1 waits in save: rank 1 is stopped or stuck"),
                std::string::npos)
          << notification.status().message();
      over.store(true);
      cluster.network().resume(1);
      return;
    }
    while (!over.load() && !limit.passed()) std::this_thread::yield();
    EXPECT_TRUE(over.load());
    cluster.network().resume(1);
  });
}

TEST(InternodeGroups, RanksOfOneNodeMayFormAGroupAndOthersMayNot) {
  FakeCluster cluster({0, 1, 1, 1});
  cluster.run([&](Context& rank) {
    const auto refused = rank.split({0, 2});
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("different machines"), std::string::npos);
    auto made = rank.split({3, 1});
    ASSERT_TRUE(made.ok()) << made.status().message();
    const bool member = rank.rank() == 1 || rank.rank() == 3;
    ASSERT_EQ(made.value() != nullptr, member);
    if (member) {
      int32_t sum = rank.rank();
      const Status status = made.value()->call([&](Communicator& comm) {
        return comm.allreduce(&sum, &sum, 1, DType::kInt32, Reduction::kSum, "");
      });
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(sum, 4);
      EXPECT_EQ(made.value()->group().job_rank(0), 3);
    }
    EXPECT_TRUE(rank.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, InternodeCollectives, testing::ValuesIn(names_of_layouts()),
                         [](const auto& layout) { return layout.param; });

struct Layout {
  size_t nodes, ranks;  ///< ranks of a node
};

/// What the leaders send in a call, beside their status, and what their nodes map. Part j of a call's bytes is node
/// j's.
class InternodeCounts : public testing::TestWithParam<Layout> {
 protected:
  using Sent = transport::FakeNetwork::Sent;

  const size_t nodes = GetParam().nodes;
  const size_t ranks = GetParam().ranks;
  /// The messages of a leader in an agreement: log2 of the number of nodes.
  const size_t steps = std::bit_width(nodes - 1);
  FakeCluster cluster{nodes_of_sizes(std::vector<int>(nodes, static_cast<int>(ranks)))};

  /// What each leader sends in `call`, which all ranks make.
  std::vector<Sent> sent_in(const std::function<Status(Communicator&)>& call) {
    std::vector<Sent> sent(nodes);
    cluster.link_options() = {
        .status_every = 3600s, .stuck_timeout = 3600s, .stopped = 3600s};  // only the first
    cluster.run([&](Context& rank) {
      ASSERT_TRUE(rank.call([](Communicator& comm) { return comm.barrier(""); }).ok());
      const size_t node = cluster.nodes().node_of(rank.rank());
      const Sent before = cluster.network().sent(static_cast<int>(node));
      const Status status = rank.call(call);
      ASSERT_TRUE(status.ok()) << status.message();
      if (rank.rank() != cluster.nodes().leader(node)) return;
      const Sent after = cluster.network().sent(static_cast<int>(node));
      sent[node] = {after.messages - before.messages, after.bytes - before.bytes};
    });
    return sent;
  }
};

constexpr size_t kHead = 64;  // bytes of a call without data, which each node gets of each other

TEST_P(InternodeCounts, ACallWithInlineBytesIsOneMessageAStep) {
  const size_t bytes = inline_limit(cluster.nodes());
  Bytes data(bytes * nodes * ranks);
  for (const Sent& sent : sent_in([&](Communicator& comm) {
         std::byte* const own = data.data() + bytes * static_cast<size_t>(comm.rank());
         return comm.allreduce(own, own, bytes, DType::kUInt8, Reduction::kMax, "");
       }))
    EXPECT_EQ(sent, (Sent{steps, (nodes - 1) * (kHead + bytes)}));
}

TEST_P(InternodeCounts, AnAllreduceOfAChunkSendsTheBytesOfARing) {
  const size_t bytes = std::max(chunk_bytes(ranks), inline_limit(cluster.nodes()) + 64);
  Bytes data(bytes * nodes * ranks);
  const auto sent = sent_in([&](Communicator& comm) {
    std::byte* const own = data.data() + bytes * static_cast<size_t>(comm.rank());
    return comm.allreduce(own, own, bytes, DType::kUInt8, Reduction::kMax, "");
  });
  for (size_t node = 0; node < nodes; ++node) {
    const size_t part = slice_of(bytes, node, nodes).bytes();
    EXPECT_EQ(sent[node],
              (Sent{2 * (nodes - 1) + steps, (nodes - 1) * kHead + (bytes - part) + (nodes - 1) * part}));
  }
}

TEST_P(InternodeCounts, ABroadcastOfAChunkSendsItAtMostTwiceFromTheRoot) {
  const size_t bytes = std::max(chunk_bytes(ranks), inline_limit(cluster.nodes()) + 64);
  Bytes data(bytes * nodes * ranks);
  const auto sent = sent_in([&](Communicator& comm) {
    return comm.broadcast(data.data() + bytes * static_cast<size_t>(comm.rank()), bytes, DType::kUInt8, 0,
                          "");
  });
  for (size_t node = 0; node < nodes; ++node) {
    const size_t part = slice_of(bytes, node, nodes).bytes();
    const Sent of_root{2 * (nodes - 1) + steps, (nodes - 1) * kHead + (bytes - part) + (nodes - 1) * part};
    const Sent of_other{steps + nodes - 2, (nodes - 1) * kHead + (nodes - 2) * part};
    EXPECT_EQ(sent[node], node == 0 ? of_root : of_other);
  }
}

TEST_P(InternodeCounts, AnAllgatherOfInlineBytesIsOneMessageAStep) {
  const size_t bytes = inline_limit(cluster.nodes()) / 256;
  const Bytes input(bytes);
  const std::vector<uint64_t> counts(nodes * ranks, bytes);
  for (const Sent& sent : sent_in([&](Communicator& comm) {
         Bytes output(nodes * ranks * bytes);
         return comm.allgather(input.data(), output.data(), counts, DType::kUInt8, "");
       }))
    EXPECT_EQ(sent, (Sent{steps, (nodes - 1) * (kHead + round_up(ranks * bytes, 64))}));
}

TEST_P(InternodeCounts, AReduceScatterSendsEachNodeWhatItReduces) {
  constexpr size_t kBytes = 300;
  const Bytes input(nodes * ranks * kBytes);
  for (const Sent& sent : sent_in([&](Communicator& comm) {
         Bytes output(kBytes);
         return comm.reduce_scatter(input.data(), output.data(), kBytes, DType::kUInt8, Reduction::kMax, "");
       }))
    EXPECT_EQ(sent, (Sent{nodes - 1 + steps, (nodes - 1) * (kHead + ranks * kBytes)}));
}

class CountsOfTwoRanks : public InternodeCounts {};

TEST_P(CountsOfTwoRanks, ValuesTravelBesideTheCall) {
  for (const auto& [bytes, hops] :
       {std::pair{size_t{64} * 1024, size_t{0}}, std::pair{size_t{64} * 1024 + 64, size_t{1}},
        std::pair{size_t{256} << 10, size_t{1}}, std::pair{(size_t{256} << 10) + 64, size_t{2}}}) {
    Bytes data(bytes * 2);
    for (const Sent& sent : sent_in([&](Communicator& comm) {
           std::byte* const own = data.data() + bytes * static_cast<size_t>(comm.rank());
           return comm.allreduce(own, own, bytes, DType::kUInt8, Reduction::kMax, "");
         }))
      EXPECT_EQ(sent.messages, 1 + hops) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, CountsOfTwoRanks, testing::Values(Layout{2, 1}));

INSTANTIATE_TEST_SUITE_P(Nodes, InternodeCounts,
                         testing::Values(Layout{2, 2}, Layout{3, 2}, Layout{8, 2}, Layout{16, 1},
                                         Layout{kManyNodes, 4}),
                         [](const auto& layout) {
                           return text(layout.param.nodes, "_of_", layout.param.ranks);
                         });

/// All ranks must get a status of `code` whose text has `part`.
void expect_end(FakeCluster& cluster, Code code, const std::string& part,
                const std::function<Status(Communicator&, int)>& operation) {
  cluster.run([&](Context& rank) {
    const Status status = rank.call([&](Communicator& comm) { return operation(comm, rank.rank()); });
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    const Status after = rank.call([](Communicator& comm) { return comm.barrier(""); });
    EXPECT_EQ(after.message(), status.message()) << "a failed job stays failed";
  });
}

TEST(EndsOfTwoRanks, SumsThatDifferAreNamedThoughTheirValuesTravelBesideTheCalls) {
  constexpr size_t kUsual = size_t{128} << 10;
  struct Other {
    DType dtype;
    size_t bytes;
    Reduction reduction;
  };
  for (const Other& other :
       {Other{DType::kFloat16, kUsual, Reduction::kSum},
        Other{DType::kFloat32, size_t{8} << 20, Reduction::kSum},
        Other{DType::kFloat32, 2 * kUsual, Reduction::kSum}, Other{DType::kFloat32, 256, Reduction::kSum},
        Other{DType::kFloat32, 0, Reduction::kSum}, Other{DType::kFloat32, kUsual, Reduction::kMax}}) {
    for (const int odd : {0, 1}) {
      FakeCluster cluster(nodes_of_sizes({1, 1}), other.bytes);
      Bytes data(size_t{16} << 20);
      expect_end(cluster, Code::kMismatch, "allreduce", [&](Communicator& comm, int rank) {
        const Other call = rank == odd ? other : Other{DType::kFloat32, kUsual, Reduction::kSum};
        std::byte* const own = data.data() + (size_t{8} << 20) * static_cast<size_t>(rank);
        return comm.allreduce(own, own, call.bytes / size_of(call.dtype), call.dtype, call.reduction, "");
      });
    }
  }
}

constexpr int kBarriers = 30;

/// Has two nodes enter so many barriers. Returns how often another thread than the callers' had to move their
/// bytes.
int barriers_with_help() {
  std::atomic<int> helped{0};
  const NodeMap nodes({0, 1});
  transport::FakeNetwork network(2, 1, 1);
  const auto make_calls = [&](int rank) {
    transport::FakeNode memory({rank}, 2);
    const auto group = NodeGroup::create(memory.memory(0), {}).value();
    LeaderLink link(group, network.endpoint(rank), nodes, RemoteNotifications::create(*group, nodes).value(),
                    {});
    LeaderExchange leaders(link);
    std::atomic<int> passed{0};
    // What a progress thread would do, and only if the calls do not get on.
    std::thread helper([&] {
      for (int last = 0; passed.load() < kBarriers; last = passed.load()) {
        std::this_thread::sleep_for(20ms);
        if (passed.load() != last) continue;
        ++helped;
        for (int k = 0; k < 100; ++k) (void)link.progress();
      }
    });
    for (; passed.load() < kBarriers; ++passed) {
      *leaders.inline_payload() = static_cast<std::byte>(10 * passed.load() + rank);
      EXPECT_TRUE(
          leaders.exchange_calls({Operation::kBarrier, "", DType::kUInt8, Reduction::kSum, 0, 0, {}}, 1)
              .ok());
      EXPECT_EQ(*leaders.inline_payload_of(static_cast<size_t>(1 - rank)),
                static_cast<std::byte>(10 * passed.load() + 1 - rank));
    }
    helper.join();
  };
  std::thread other(make_calls, 1);
  make_calls(0);
  other.join();
  return helped.load();
}

TEST(LeaderLinks, MoveTheBytesOfACallOnItsOwnThread) {
  int helped = kBarriers;
  // on a busy machine a caller may not get the core for as long as it polls
  for (int attempt = 0; attempt < 10 && helped >= kBarriers; ++attempt) helped = barriers_with_help();
  EXPECT_LT(helped, kBarriers);  // of twice as many
}

TEST(LeaderLinks, DriveForOneThatWaitsAlone) {
  const NodeMap nodes({0, 1});
  transport::FakeNetwork network(2, 1, 1);
  std::vector<std::unique_ptr<transport::FakeNode>> memories;
  std::vector<std::shared_ptr<NodeGroup>> groups;
  std::vector<std::unique_ptr<LeaderLink>> links;
  for (const int rank : {0, 1}) {
    memories.push_back(std::make_unique<transport::FakeNode>(std::vector{rank}, 2));
    groups.push_back(NodeGroup::create(memories.back()->memory(0), {}).value());
    links.push_back(std::make_unique<LeaderLink>(groups.back(), network.endpoint(rank), nodes,
                                                 RemoteNotifications::create(*groups.back(), nodes).value(),
                                                 LeaderLinkOptions{}));
  }
  const auto out = std::make_shared<std::array<std::byte, 8>>();
  out->fill(std::byte{5});
  const auto in = std::make_shared<std::array<std::byte, 8>>();
  const auto sent = links[0]->send(1, MessageTag::kResult, *out, out);
  const auto received = links[1]->receive(0, MessageTag::kResult, *in, in);
  EXPECT_FALSE(links[0]->try_progress_if_one_pending());  // none is pending
  for (const auto& link : links) link->begin_operation();
  links[0]->begin_operation();
  EXPECT_FALSE(links[0]->try_progress_if_one_pending());  // two are pending
  links[0]->end_operation();
  for (const Deadline limit = Deadline::after(10s);
       !limit.passed() && !(sent->ended() && received->ended());) {
    for (const auto& link : links) EXPECT_TRUE(link->try_progress_if_one_pending());
  }
  EXPECT_TRUE(sent->completed_in_full());
  EXPECT_TRUE(received->completed_in_full());
  EXPECT_EQ(*in, *out);
}

TEST(LeaderLinks, FailIfACallIsStuckInTheEndpoint) {
  const NodeMap nodes({0, 1});
  transport::FakeNetwork network(2, 1);
  transport::FakeNode memory({0}, 2);
  const auto group = NodeGroup::create(memory.memory(0), {.stuck_timeout = 300ms}).value();
  LeaderLink link(group, network.endpoint(0), nodes, RemoteNotifications::create(*group, nodes).value(), {});
  network.stop(0);
  std::thread call([&] {
    LeaderExchange leaders(link);
    EXPECT_EQ(leaders.exchange_calls({}, 0).code(), Code::kPeerLost);
  });
  std::this_thread::sleep_for(500ms);  // it is in the endpoint
  std::atomic<bool> over{false};
  std::thread resumes([&] {
    for (const Deadline limit = Deadline::after(20s); !over.load() && !limit.passed();)
      std::this_thread::sleep_for(1ms);
    network.resume(0);
  });
  for (const Deadline limit = Deadline::after(10s); group->failure().ok() && !limit.passed();) {
    (void)link.progress();
    std::this_thread::sleep_for(1ms);
  }
  over.store(true);
  call.join();
  resumes.join();
  EXPECT_NE(group->failure().message().find("rank 0 has been stuck in a transfer between machines for 0 s"),
            std::string::npos)
      << group->failure().message();
}

TEST(LeaderLinks, EndCallsAndCloseWhileTheProgressThreadIsStuckInTheEndpoint) {
  FakeCluster cluster(nodes_of_sizes({1, 1}));
  cluster.options().stuck_timeout = 300ms;
  std::atomic<bool> over{false};
  const Deadline limit = Deadline::after(10s);
  cluster.run([&](Context& rank) {
    const auto enter_barrier = [&] {
      return rank.call([](Communicator& comm) { return comm.barrier("b"); });
    };
    ASSERT_TRUE(enter_barrier().ok());
    if (rank.rank() == 1) {
      while (!over.load() && !limit.passed()) std::this_thread::yield();
      return;
    }
    cluster.network().stop(0);
    while (!cluster.network().holds(0)) std::this_thread::yield();  // the progress thread
    std::thread resumes([&] {
      while (!over.load() && !limit.passed()) std::this_thread::yield();
      if (!over.load()) cluster.network().resume(0);
    });
    const Status status = enter_barrier();
    EXPECT_FALSE(limit.passed());
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 0 has been stuck in a transfer between machines for 0 s"),
              std::string::npos)
        << status.message();
    const auto before = Clock::now();
    rank.close();
    EXPECT_LT(Clock::now() - before, 3s);  // 2 s, and some for a busy machine
    over.store(true);
    resumes.join();
  });
  // The memory is the last thing that the thread lets go of.
  EXPECT_FALSE(cluster.memory(0).has_departed(0)) << "the thread was not left behind";
  cluster.network().resume(0);
  for (const Deadline end = Deadline::after(30s); !cluster.memory(0).has_departed(0) && !end.passed();)
    std::this_thread::yield();
  EXPECT_TRUE(cluster.memory(0).has_departed(0));
}

TEST(InternodeDisagreements, AreNamedWithTheRanksOfTheJob) {
  FakeCluster cluster(nodes_of_sizes({2, 2, 1}));
  expect_end(cluster, Code::kMismatch,
             "rank 2 called allreduce \"w\" of 4 x float32 (sum) while rank 0 called allreduce \"w\" of 3 x "
             "float32 (sum); make the same calls",
             [](Communicator& comm, int) {
               std::vector<float> data(4);
               return comm.allreduce(data.data(), data.data(), internode_of(comm).own_node() == 1 ? 4 : 3,
                                     DType::kFloat32, Reduction::kSum, "w");
             });
}

TEST(InternodeDisagreements, OfCallsWithInlineAndWithManyBytesAreNamed) {
  FakeCluster cluster(nodes_of_sizes({1, 2}));
  expect_end(cluster, Code::kMismatch,
             "rank 1 called barrier while rank 0 called broadcast of 100000 x int64 from rank 1",
             [](Communicator& comm, int rank) -> Status {
               std::vector<int64_t> data(100'000);
               if (rank != 0) return comm.barrier("");
               return comm.broadcast(data.data(), data.size(), DType::kInt64, 1, "");
             });
}

TEST(InternodeDisagreements, WithinANodeEndTheOtherNodes) {
  FakeCluster cluster(nodes_of_sizes({1, 1, 2}));
  expect_end(cluster, Code::kMismatch,
             "rank 3 called allreduce \"b\" of 1 x float32 (sum) while rank 2 called allreduce \"a\"",
             [](Communicator& comm, int rank) {
               float data = 0;
               return comm.allreduce(&data, &data, 1, DType::kFloat32, Reduction::kSum,
                                     rank == 3 ? "b" : "a");
             });
}

TEST(InternodeDisagreements, BadArgumentsAreRefusedBeforeAnythingIsSent) {
  FakeCluster cluster(nodes_of_sizes({1, 1}));
  cluster.run([&](Context& rank) {
    float data = 0;
    for (const int root : {-1, 2}) {
      EXPECT_EQ(
          rank.call([&](Communicator& comm) { return comm.broadcast(&data, 1, DType::kFloat32, root, ""); })
              .code(),
          Code::kInvalidArgument);
    }
    EXPECT_EQ(rank.call([&](Communicator& comm) {
                    return comm.allreduce(&data, &data, 1, DType::kFloat32, Reduction::kAnd, "");
                  })
                  .code(),
              Code::kInvalidArgument);
    EXPECT_TRUE(rank.call([](Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST(InternodeDisagreements, AMessageOfAnotherLengthIsNotTaken) {
  FakeCluster cluster(nodes_of_sizes({1, 1}));
  expect_end(cluster, Code::kMismatch, "a message of 10 bytes came from rank 1 where 12 were expected",
             [](Communicator& comm, int rank) {
               const auto bytes = std::make_shared<std::array<std::byte, 12>>();
               const LeaderExchange::Incoming all{static_cast<size_t>(1 - rank), *bytes};
               const LeaderExchange::Outgoing some{0, std::span(*bytes).first(10)};
               if (rank == 0)
                 return internode_of(comm).leader_exchange()->send_receive(MessageTag::kShard, {}, {all},
                                                                           bytes, CallSignature{});
               const Status sent = internode_of(comm).leader_exchange()->send_receive(
                   MessageTag::kShard, {some}, {}, bytes, CallSignature{});
               return sent.ok() ? comm.barrier("") : sent;
             });
}

/// Times are a tenth of the real ones. A leader that waits for nothing looks twenty times a second, so messages must
/// not be late by many looks.
constexpr Duration kNoticed = 1s;
class QuickCluster : public FakeCluster {
 public:
  explicit QuickCluster(const std::vector<int>& sizes) : FakeCluster(nodes_of_sizes(sizes), 1, 2) {
    link_options() = {.status_every = 100ms, .stuck_timeout = 800ms, .stopped = 400ms};
  }
};

TEST(EndsOfNodes, AFailureOfARankEndsTheCallsOfAllNodes) {
  FakeCluster cluster(nodes_of_sizes({2, 2}));
  cluster.run([&](Context& rank) {
    if (rank.rank() == 3) {
      (void)rank.group().fail({Code::kPeerLost, "rank 3 failed: out of luck"});
      return;
    }
    const Status status = rank.call([](Communicator& comm) { return comm.barrier(""); });
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(status.message(), "rank 3 failed: out of luck");
  });
}

TEST(EndsOfNodes, ADeadRankOfAnotherNodeIsNamed) {
  FakeCluster cluster(nodes_of_sizes({1, 2}));
  std::atomic<int> waiting{2};
  cluster.run([&](Context& rank) {
    if (rank.rank() == 2) {
      cluster.memory(1).end(1);
      while (waiting.load() != 0) std::this_thread::yield();
      return;
    }
    const Status status = rank.call([](Communicator& comm) { return comm.barrier("b"); });
    --waiting;
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 2 has died"), std::string::npos) << status.message();
  });
}

TEST(EndsOfNodes, WhateverComesIsASignOfLife) {
  QuickCluster cluster({1, 1});
  cluster.link_options().status_every = 3600s;  // as if they were behind many bytes on a slow link
  cluster.run([&](Context& rank) {
    const Deadline end = Deadline::after(3 * cluster.link_options().stuck_timeout);
    for (uint8_t goes_on = 1; goes_on != 0;) {
      std::this_thread::sleep_for(20ms);
      goes_on = end.passed() ? 0 : 1;
      const Status status =
          rank.call([&](Communicator& comm) { return comm.broadcast(&goes_on, 1, DType::kUInt8, 0, ""); });
      ASSERT_TRUE(status.ok()) << status.message();
      const Status back = rank.call([](Communicator& comm) { return comm.barrier(""); });
      ASSERT_TRUE(back.ok()) << back.message();
    }
  });
}

TEST(EndsOfNodes, ACutLinkIsNoticedOnBothSides) {
  QuickCluster cluster({2, 2});
  std::atomic<int> passed{0};
  cluster.run([&](Context& rank) {
    ASSERT_TRUE(rank.call([](Communicator& comm) { return comm.barrier(""); }).ok());
    ++passed;
    while (passed.load() != cluster.size()) std::this_thread::yield();
    const auto before = Clock::now();
    if (rank.rank() == 0) cluster.network().cut(0, 1);
    Status status;
    while (status.ok()) status = rank.call([](Communicator& comm) { return comm.barrier(""); });
    EXPECT_LT(Clock::now() - before, kNoticed + 1s);  // for a busy machine
    EXPECT_EQ(status.code(), Code::kPeerLost);
    const bool first = rank.rank() < 2;
    const std::string part = first ? "' with ranks 2 to 3: rank 0 has received nothing from it for"
                                   : "' with ranks 0 to 1: rank 2 has received nothing from it for";
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  });
}

TEST(EndsOfNodes, ANodeThatIsOffIsNoticedByAllOthersWhileTheyMakeNoCall) {
  QuickCluster cluster({1, 1, 1});
  std::atomic<int> passed{0};
  std::atomic<int> left{2};
  cluster.run([&](Context& rank) {
    EXPECT_TRUE(rank.call([](Communicator& comm) { return comm.barrier(""); }).ok());
    ++passed;
    while (passed.load() != cluster.size()) std::this_thread::yield();  // a cut loses what is on its way
    if (rank.rank() == 1) {
      cluster.network().cut(1);
      while (left.load() != 0) std::this_thread::yield();
      return;
    }
    const Deadline limit = Deadline::after(20s);
    while (rank.group().failure().ok() && !limit.passed()) std::this_thread::sleep_for(1ms);
    EXPECT_NE(rank.group().failure().message().find("' with rank 1: rank "), std::string::npos)
        << rank.group().failure().message();
    --left;
  });
}

TEST(EndsOfNodes, ANodeThatIsBusyElsewhereIsAwaited) {
  QuickCluster cluster({1, 2});
  cluster.run([&](Context& rank) {
    if (rank.rank() == 0) std::this_thread::sleep_for(3s);  // its progress thread speaks
    const Status status = rank.call([](Communicator& comm) { return comm.barrier(""); });
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(EndsOfNodes, AJobThatIsStoppedEverywhereGoesOn) {
  QuickCluster cluster({1, 1});
  cluster.run([&](Context& rank) {
    const auto enter_barrier = [&] { return rank.call([](Communicator& comm) { return comm.barrier(""); }); };
    ASSERT_TRUE(enter_barrier().ok());
    if (rank.rank() == 0) {  // stopped later than rank 1, and resumed earlier: half a silence each time
      cluster.network().stop(1);
      std::this_thread::sleep_for(450ms);
      cluster.network().stop(0);
      std::this_thread::sleep_for(2s);
      cluster.network().resume(0);
      std::this_thread::sleep_for(450ms);
      cluster.network().resume(1);
    }
    const Status status = enter_barrier();
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(EndsOfNodes, ANodeThatIsSilentForAWhileIsNamedAndAwaited) {
  QuickCluster cluster({1, 1});
  cluster.link_options().missed = 300ms;
  cluster.link_options().stuck_timeout = 60s;
  testing::internal::CaptureStderr();
  cluster.run([&](Context& rank) {
    const auto enter_barrier = [&] { return rank.call([](Communicator& comm) { return comm.barrier(""); }); };
    ASSERT_TRUE(enter_barrier().ok());
    if (rank.rank() == 0) {
      cluster.network().stop(1);
      std::this_thread::sleep_for(1500ms);
      cluster.network().resume(1);
    }
    const Status status = enter_barrier();
    EXPECT_TRUE(status.ok()) << status.message();
    if (rank.rank() == 0) std::this_thread::sleep_for(300ms);  // until a status has come
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("WARNING: rank 0 has received nothing from host '"), std::string::npos) << said;
  EXPECT_NE(said.find("' with rank 1 for 0 s: is it paused, stopped or swapping? It is lost after 60 s"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("' with rank 1 responds again, after 1 s"), std::string::npos) << said;
}

TEST(EndsOfNodes, ANodeThatHasLeftEndsOnlyWaitsForIt) {
  QuickCluster cluster({1, 1});
  cluster.run([&](Context& rank) {
    if (rank.rank() == 1) return;
    std::this_thread::sleep_for(1500ms);  // longer than silence
    EXPECT_TRUE(rank.group().failure().ok()) << rank.group().failure().message();
    const Status status = rank.call([](Communicator& comm) { return comm.barrier("the last"); });
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 0 waits in barrier \"the last\": rank 1 ended"), std::string::npos)
        << status.message();
  });
}

}  // namespace
}  // namespace tarantella::collective::internode
