// The memory of jobs on several nodes: what a node's ranks share, and what a leader allocates for itself. And that a
// timeline allocates nothing.

#include <malloc.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>

#include "cluster.h"
#include "engine/plan.h"
#include "timeline_on.h"
#include "world.h"

namespace {

std::atomic<int64_t> allocated{0};    // bytes, by the whole process
std::atomic<int64_t> allocations{0};  // how often

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  allocated += static_cast<int64_t>(::malloc_usable_size(memory));
  ++allocations;
  return memory;
}

void operator delete(void* memory) noexcept {
  allocated -= static_cast<int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace tarantella::engine {
namespace {

struct Used {
  uint64_t shared;  ///< bytes that a node maps
  uint64_t own;     ///< bytes that a leader allocates, with its part of the fake network
};

/// After a step of one bucket of `bytes` bytes.
Used used(size_t nodes, size_t ranks, size_t bytes) {
  FakeCluster cluster(nodes_of_sizes(std::vector<int>(nodes, static_cast<int>(ranks))));
  cluster.link_options() = {
      .status_every = 3600s, .stuck_timeout = 3600s, .stopped = 3600s};  // only the first
  const std::vector<TensorSpec> specs = {
      {"t", DType::kFloat32, {static_cast<int64_t>(bytes / sizeof(float))}}};
  const int64_t before = allocated.load();
  Used result{};
  std::atomic<int> come{0};
  std::atomic<bool> measured{false};
  cluster.run([&](Context& rank) {
    auto plan = rank.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    {
      std::vector<float> values(bytes / sizeof(float));
      void* const in_place = values.data();
      const Status status = plan.value()->run(&in_place, nullptr, &in_place);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ++come;
    while (rank.rank() == 0 && come.load() != cluster.size()) std::this_thread::sleep_for(1ms);
    if (rank.rank() == 0) {
      result = {cluster.memory(0).mapped(), static_cast<uint64_t>(allocated.load() - before) / nodes};
      measured = true;
    }
    while (!measured.load()) std::this_thread::sleep_for(1ms);
  });
  return result;
}

struct Layout {
  size_t nodes, ranks;  ///< ranks of a node
};

class InternodeMemory : public testing::TestWithParam<Layout> {};

// docs/performance.md states these.
TEST_P(InternodeMemory, GrowsWithTheNumberOfNodesByLittle) {
  const auto [nodes, ranks] = GetParam();
  const size_t others = nodes - 1;
  constexpr size_t kBytes = 1024 * 1024;
  const Used one = used(1, ranks, kBytes);
  const Used many = used(nodes, ranks, kBytes);
  constexpr size_t kNotifications = 16'512;  // of a node's leader: 1,024 of them
  constexpr size_t kMember = 384;
  EXPECT_EQ(many.shared, one.shared + others * (kNotifications + ranks * kMember));
  const size_t fixed_bytes = size_t{nodes * ranks == 2 ? 512u
                                    : nodes == 2       ? 256u
                                                       : 128u} *
                             1024;  // of all nodes, and what the fake network holds
  EXPECT_LT(many.own, kBytes + fixed_bytes + nodes * 8192);
}

INSTANTIATE_TEST_SUITE_P(Nodes, InternodeMemory,
                         testing::Values(Layout{2, 1}, Layout{2, 2}, Layout{8, 2}, Layout{64, 4}),
                         [](const auto& layout) {
                           return text(layout.param.nodes, "_of_", layout.param.ranks);
                         });

constexpr int kSteps = 100;
constexpr size_t kTensors = 8;

/// How often two ranks allocate in kSteps steps of a plan of two buckets, after the first.
int64_t allocations_in_steps() {
  World world("fake", 2);
  const std::vector<TensorSpec> specs(kTensors, {"w", DType::kFloat32, {256}});
  int64_t before = 0, found = 0;
  world.run([&](Context& context) {
    auto plan = context.add_plan("gradients", specs, kTensors / 2 * 1024);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::vector<std::vector<float>> values(kTensors, std::vector<float>(256));
    std::vector<void*> places;
    for (auto& each : values) places.push_back(each.data());
    const auto barrier = [&] { ASSERT_TRUE(context.call([](auto& comm) { return comm.barrier(""); }).ok()); };
    const auto train = [&](int steps) {
      for (int step = 0; step < steps; ++step) {
        const timeline::Span span(timeline::Kind::kStep, "train step");
        ASSERT_TRUE(plan.value()->run(places.data(), nullptr, places.data()).ok());
      }
    };
    train(2);
    barrier();
    if (context.group().rank() == 0) before = allocations.load();
    barrier();
    train(kSteps);
    barrier();
    if (context.group().rank() == 0) found = allocations.load() - before;
    barrier();
  });
  return found;
}

TEST(MemoryOfATimeline, StepsAllocateNothingMore) {
  constexpr size_t kRoom = 2 * (kSteps + 10) * (2 + kTensors + 2);
  // Which thread takes a step of a bucket makes some allocations more or fewer, so the least of several runs counts: of
  // many on a busy machine.
  int64_t without = INT64_MAX, with = INT64_MAX;
  for (int run = 0; run < 10 || (run < 100 && with >= without + kSteps); ++run) {
    without = std::min(without, allocations_in_steps());
    const TimelineOn on(kRoom);
    with = std::min(with, allocations_in_steps());
  }
  EXPECT_LT(with, without + kSteps);
  TimelineOn on(kRoom);
  (void)allocations_in_steps();
  // docs/timeline.md: without batches, 1 + G + B records a step and rank
  std::map<timeline::Kind, size_t> made;
  for (const timeline::Record& record : on.records()) ++made[record.kind.load()];
  constexpr size_t kRanks = 2, kAll = kRanks * (kSteps + 2);
  EXPECT_EQ(made[timeline::Kind::kStep], kAll);
  EXPECT_EQ(made[timeline::Kind::kGradient], kAll * kTensors);
  EXPECT_EQ(made[timeline::Kind::kBucket], kAll * 2);
  EXPECT_EQ(on.timeline().lost(), 0u);
}

}  // namespace
}  // namespace tarantella::engine
