#include "explorer/scenarios.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/flag_groups.h"
#include "collective/node_communicator.h"
#include "collective/shared_memory_reduction.h"
#include "collective/source_location.h"
#include "engine/context.h"
#include "explorer/fibers.h"
#include "explorer/model.h"
#include "support/fake_memory.h"
#include "timeline_on.h"

namespace tarantella {
namespace {

using collective::Communicator;
using collective::GroupOptions;
using collective::NodeCommunicator;
using collective::NodeGroup;
using collective::StagingBuffers;
using engine::Context;
using ::explorer::check;
using ::explorer::random;

bool chance(uint64_t one_in) { return random(one_in) == 0; }

/// Runs body(rank, memory) on one fiber per rank.
void on_ranks(int size, const std::function<void(int, std::unique_ptr<transport::NodeMemory>)>& body) {
  transport::FakeNode node(size);
  node.set_dedicated_cores(chance(4));
  std::vector<int> fibers;
  for (int rank = 0; rank < size; ++rank) {
    fibers.push_back(::explorer::start(text("rank ", rank), [&, rank] { body(rank, node.memory(rank)); }));
  }
  for (const int fiber : fibers) ::explorer::join(fiber, ::explorer::Where::current());
}

int some_ranks() { return chance(3) ? 3 + static_cast<int>(random(2)) : 2; }

/// Three ranks or more meet in one flag group or in several.
GroupOptions some_options() {
  GroupOptions options;
  if (chance(2)) options.one_level = 2;
  return options;
}

/// Runs body(group) on one fiber per rank.
void on_groups(const std::function<void(NodeGroup&)>& body, int size = some_ranks(),
               const GroupOptions& options = some_options()) {
  on_ranks(size, [&](int, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), options);
    must(group.status());
    body(*group.value());
  });
}

/// Runs body(context) on one fiber per rank.
void on_contexts(const std::function<void(std::unique_ptr<Context>&)>& body, int size = some_ranks()) {
  const GroupOptions options = some_options();
  on_ranks(size, [&](int, std::unique_ptr<transport::NodeMemory> memory) {
    auto communicator = NodeCommunicator::create(std::move(memory), options);
    must(communicator.status());
    auto context = Context::create(std::move(communicator).value());
    must(context.status());
    body(context.value());
  });
}

/// A round of slices, one cache line for each rank, as in an allreduce of many bytes.
void reduce_slices(StagingBuffers& staging, uint64_t round) {
  constexpr size_t kLine = 64;
  const size_t size = staging.size(), bytes = size * kLine;
  const auto rank = static_cast<size_t>(staging.rank());
  std::vector<uint64_t> numbers(bytes / sizeof(uint64_t), round + rank), sums(numbers.size());
  const auto* const own = reinterpret_cast<const std::byte*>(numbers.data());
  auto* const all = reinterpret_cast<std::byte*>(sums.data());
  const auto slice = [&](size_t of) { return collective::slice_of(bytes, of, size); };
  staging.write(own, bytes, slice(rank));
  must(staging.exchange({}));
  const collective::CallSignature call{.dtype = DType::kUInt64, .reduction = Reduction::kSum};
  ::explorer::point();
  staging.reduce(call, own + slice(rank).begin, bytes, slice(rank),
                 staging.result_chunk(rank, bytes) + slice(rank).begin);
  must(staging.sync_round({}));
  for (size_t other = 0; other < size; ++other) {
    ::explorer::point();
    staging.copy_result(other, bytes, slice(other), all + slice(other).begin);
  }
  for (const uint64_t sum : sums)
    check(sum == size * round + size * (size - 1) / 2, "a slice of another round");
}

/// Ranks allgather and reduce numbers: publish() and await().
void meet() {
  on_groups([](NodeGroup& group) {
    auto comm = NodeCommunicator::create(group.shared_from_this());
    must(comm.status());
    const auto rank = static_cast<uint64_t>(group.rank());
    for (uint64_t round = 0; round < 4; ++round) {
      const auto values = group.allgather(10 * round + rank, "numbers");
      must(values.status());
      for (uint64_t other = 0; other < values.value().size(); ++other)
        check(values.value()[other] == 10 * round + other, "allgather: a number of another round");
      int64_t sum = static_cast<int64_t>(round + rank);
      must(comm.value()->allreduce(&sum, &sum, 1, DType::kInt64, Reduction::kSum, ""));
      const auto size = static_cast<int64_t>(group.size());
      check(sum == size * static_cast<int64_t>(round) + size * (size - 1) / 2, "allreduce: a wrong sum");
      sum += static_cast<int64_t>(rank);
      StagingBuffers& staging = comm.value()->staging();
      staging.write(reinterpret_cast<const std::byte*>(&sum), sizeof(sum));
      must(staging.exchange({}));
      for (size_t other = 0; other < staging.size(); ++other) {
        ::explorer::point();  // others go on while this rank reads
        int64_t shown = 0;
        std::memcpy(&shown, staging.peer_chunk(other, sizeof(shown)), sizeof(shown));
        check(shown == sum + static_cast<int64_t>(other) - static_cast<int64_t>(rank),
              "a staging buffer of another round");
      }
      for (const uint64_t call : {round, round + 1}) reduce_slices(staging, call);
    }
  });
}

/// One rank makes another call. All ranks return the same cause: the first rank whose call is not that of rank 0.
void disagree() {
  ::explorer::allow(NodeGroup::kCheckInterval);
  const int size = some_ranks();
  const int other = static_cast<int>(random(static_cast<uint64_t>(size)));
  std::vector<std::string> causes;
  on_groups(
      [&](NodeGroup& group) {
        auto comm = NodeCommunicator::create(group.shared_from_this());
        must(comm.status());
        const bool differs = group.rank() == other;
        const Status status = comm.value()->barrier(differs ? "other" : "this");
        causes.push_back(status.message());
        check(status.code() == Code::kMismatch && causes.back() == causes.front(), "two first causes");
        const std::string named = text("rank ", std::max(other, 1), " called barrier");
        check(causes.back().starts_with(named), text("not ", named, " but ", causes.back()));
      },
      size);
}

/// How many cache lines with words the last of `size` ranks looks at.
struct Lines {
  size_t meeting = 0;
  size_t publish = 0;  ///< of a bucket that all others have started
};

Lines lines_of_the_last(int size) {
  Lines found;
  on_ranks(size, [&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto group = NodeGroup::create(std::move(memory), {});
    must(group.status());
    auto comm = NodeCommunicator::create(group.value());
    must(comm.status());
    const collective::Bucket bucket{DType::kInt32, 0, collective::Bucket::kAlignment};
    auto reduction = collective::SharedMemoryReduction::create(*group.value(), {bucket}, "a plan");
    must(reduction.status());
    const auto call = [&](size_t& lines, const std::function<void()>& body) {
      if (rank != size - 1) return body();
      ::explorer::sleep(200ms);  // all others wait
      ::explorer::count_lines();
      body();
      lines = ::explorer::lines();
    };
    call(found.meeting, [&] { must(comm.value()->barrier("")); });
    call(found.publish, [&] { reduction.value()->start(0, 0); });
    must(comm.value()->barrier("end"));
  });
  return found;
}

/// The cache lines of others that a rank looks at: one of each rank of its flag group, and one of each other one.
void lines() {
  ::explorer::allow(3600s);
  const std::vector<int> sizes = {2, 3, 8, 9, 10, 16, 20, 64};
  const int size = chance(32) ? sizes.back() : sizes[random(sizes.size() - 1)];
  const auto count = static_cast<size_t>(size);
  const collective::FlagGroups flag_groups =
      size <= 8 ? collective::FlagGroups(size) : collective::FlagGroups(std::vector<uint64_t>(count));
  const size_t of_flag_group = flag_groups.ranks(flag_groups.group_of(size - 1)).size() - 1;
  const Lines own = lines_of_the_last(1);
  const Lines all = lines_of_the_last(size);
  const size_t meeting = all.meeting - own.meeting;
  check(meeting == of_flag_group + flag_groups.count() - 1,
        text("a meeting of ", size, " ranks reads ", meeting, " lines"));
  const size_t words = flag_groups.count() == 1 ? 0 : flag_groups.count();
  const size_t woken = 2 * (count - 1);  // does each look at buckets, does each sleep?
  const size_t published = all.publish - own.publish;
  check(published == of_flag_group + words + woken,
        text("a flag to ", size, " ranks reads ", published, " lines"));
}

/// One rank notifies of values without waiting, the others await each of them.
void notify() {
  on_groups([](NodeGroup& group) {
    for (uint32_t round = 0; round < 3; ++round) {
      if (group.rank() == 0) {
        group.notify("alone", 1);  // nobody awaits this one
        for (uint32_t i = 0; i < 2; ++i) group.notify("file", 10 * round + i);
      } else {
        for (uint32_t i = 0; i < 2; ++i) {
          const auto notification = group.wait_notification(0, "file");
          must(notification.status());
          check(notification.value() == 10 * round + i, "wait_notification: a value of another round");
        }
      }
      must(group.barrier("round"));
    }
  });
}

const std::vector<int64_t> kCounts = {48, 8, 8, 24};
constexpr size_t kThreshold = 64;  // bytes per bucket: the first tensor fills three

/// Training steps: gradients in any order, from one thread or two.
void plan() {
  const bool two = chance(2);
  on_contexts([two](std::unique_ptr<Context>& context) {
    Model model(*context, kCounts, kThreshold);
    for (int step = 0; step < 3; ++step) {
      model.begin_step();
      const size_t first = random(kCounts.size());
      const auto submit = [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) must(model.submit((first + i) % kCounts.size()));
      };
      std::optional<std::thread> other;
      if (two) other.emplace([&] { submit(0, 2); });
      submit(two ? 2 : 0, kCounts.size());
      must(model.wait());
      if (other) other->join();
    }
  });
}

/// A callback inside a submit lasts until another bucket is summed, which the progress thread must then do.
void callback() {
  const TimelineOn timeline(256);
  on_contexts([&](std::unique_ptr<Context>& context) {
    constexpr size_t kLarge = 0, kSmall = 1, kLater = 2;
    Model model(*context, {48, 16, 16}, kThreshold);
    const auto caller = std::this_thread::get_id();
    for (int step = 1; step <= 2; ++step) {
      model.begin_step();
      std::mutex mutex;
      std::condition_variable changed;
      bool later = false;
      const auto summed = [&] {  // also if its callback is the next one on this thread
        int found = 0;
        for (const auto& record : timeline.records()) {
          const bool bucket = record.kind.load() == timeline::Kind::kBucket && record.index == 0;
          const bool ours = bucket && record.plan == model.plan().timeline_id();
          found += ours && record.end.load() != 0 ? 1 : 0;
        }
        return found == step;
      };
      must(model.submit(kLater, [&] {
        const std::lock_guard lock(mutex);
        later = true;
        changed.notify_all();
      }));
      must(model.submit(kSmall, [&] {
        if (std::this_thread::get_id() != caller || summed()) return;
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return later; });
      }));
      must(model.submit(kLarge));
      must(model.wait());
    }
  });
}

/// One or two ranks fail in the middle of a step or a call. All ranks return the same cause within a slice.
void fail() {
  ::explorer::allow(NodeGroup::kCheckInterval);
  const int size = some_ranks();
  const bool both = chance(2);
  std::vector<std::string> causes;
  on_contexts(
      [&](std::unique_ptr<Context>& context) {
        const int rank = context->group().rank();
        Model model(*context, kCounts, kThreshold);
        const bool calls = chance(3);
        model.begin_step();
        if (rank == 0 || (both && rank == 1)) {
          size_t handed_in = 0;
          for (const size_t few = random(kCounts.size()); handed_in < few; ++handed_in) {
            if (!model.submit(handed_in).ok()) break;
          }
          model.plan().abort("gives up");
          (void)model.wait(kCounts.size() - handed_in);
        } else if (calls) {
          check(!context->call([](Communicator& comm) { return comm.barrier(""); }).ok(),
                "a call succeeded without a failed rank");
        } else {
          size_t refused = 0;
          for (size_t tensor = 0; tensor < kCounts.size(); ++tensor)
            refused += model.submit(tensor).ok() ? 0 : 1;
          const Status status = model.wait(refused);
          check(!status.ok() || refused != 0, "a step succeeded without a failed rank");
        }
        causes.push_back(context->group().failure().message());
        check(!causes.back().empty() && causes.back() == causes.front(), "two first causes");
      },
      size);
}

/// A rank closes its context while another of its threads waits in a call or for a step.
void close() {
  ::explorer::allow(NodeGroup::kCheckInterval);
  on_contexts([](std::unique_ptr<Context>& context) {
    const int rank = context->group().rank();
    Model model(*context, kCounts, kThreshold);
    if (rank != 0) return;
    const bool calls = chance(2);
    std::thread waits([&] {
      Status status;
      if (calls) {
        status = context->call([](Communicator& comm) { return comm.barrier(""); });
      } else {
        model.begin_step();
        size_t refused = 0;
        for (size_t tensor = 0; tensor < kCounts.size(); ++tensor)
          refused += model.submit(tensor).ok() ? 0 : 1;
        if (refused != kCounts.size()) status = model.wait(refused);
        if (refused != 0) return;
      }
      check(status.code() == Code::kPeerLost, "a wait did not end with its context");
    });
    context->close();
    waits.join();
  });
}

/// Rank 0 is asked where its program is, and closes its group meanwhile.
void question() {
  on_groups([](NodeGroup& group) {
    must(group.barrier("start"));
    if (group.rank() != 0) {
      collective::SourceLocationQuery question(group.rank_table(), 0);
      (void)question.answered();
      return;
    }
    std::thread answers([&] {
      uint32_t seen = 0;
      while (group.await_location_query(seen).ok()) group.report_location("here");
    });
    group.close();
    answers.join();
  });
}

/// A step in a group, while the whole job makes a call.
void groups() {
  on_contexts([](std::unique_ptr<Context>& context) {
    const int size = context->group().size();
    std::vector<int> all;
    for (int rank = size; rank-- > 0;) all.push_back(rank);
    auto made = context->split(all);
    must(made.status());
    Model model(*made.value(), kCounts, kThreshold);
    std::thread beside([&] { must(context->call([](Communicator& comm) { return comm.barrier(""); })); });
    model.begin_step();
    for (size_t tensor = 0; tensor < kCounts.size(); ++tensor) must(model.submit(tensor));
    must(model.wait());
    beside.join();
  });
}

/// A callback of a step gives up a group, as a garbage collector may do, while another thread makes and closes one.
void give_up() {
  on_contexts([](std::unique_ptr<Context>& context) {
    std::vector<int> all;
    for (int rank = context->group().size(); rank-- > 0;) all.push_back(rank);
    auto made = context->split(all);
    must(made.status());
    Model model(*context, kCounts, kThreshold);
    std::thread beside([&] {
      auto other = context->split(all);
      must(other.status());
      other.value()->close();
    });
    model.begin_step();
    for (size_t tensor = 0; tensor < kCounts.size(); ++tensor)
      must(model.submit(tensor, [&made, tensor] {
        if (tensor == 0) made.value().reset();
      }));
    must(model.wait());
    beside.join();
  });
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"meet", meet},         {"disagree", disagree}, {"lines", lines},    {"notify", notify},
      {"plan", plan},         {"callback", callback}, {"fail", fail},      {"close", close},
      {"question", question}, {"groups", groups},     {"give_up", give_up}};
  return all;
}

}  // namespace tarantella
