#pragma once
// A job whose ranks are threads of this process, over any transport: one behaviour, tested on all.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "collective/node_communicator.h"
#include "engine/context.h"
#include "job_name.h"
#include "support/fake_memory.h"
#include "transport/shm/shm_memory.h"

namespace tarantella {

/// Collective. A rank's context of a job on one node.
inline Result<std::unique_ptr<engine::Context>> join(std::unique_ptr<transport::NodeMemory> memory,
                                                     collective::GroupOptions options) {
  auto made = collective::NodeCommunicator::create(std::move(memory), options);
  if (!made.ok()) return made.status();
  return engine::Context::create(std::move(made).value());
}

class World {
 public:
  /// `transport`: shm, fake, or spinning, which is fake with ranks that spin before they sleep.
  World(const std::string& transport, int size) : transport_(transport), size_(size) {
    options_.failure_delay = 300ms;
    options_.stuck_timeout = 60s;
  }

  int size() const { return size_; }
  /// That of the run under way.
  transport::FakeNode& node() { return *node_; }
  collective::GroupOptions& options() { return options_; }
  /// See FakeNode; on fake only.
  void set_caches(const std::vector<uint64_t>& caches) { caches_ = caches; }

  /// Runs body(rank, memory) on one thread a rank, as a new job.
  void run_memories(const std::function<void(int, std::unique_ptr<transport::NodeMemory>)>& body) {
    job_ = new_job_name();
    node_ = std::make_unique<transport::FakeNode>(size_);
    node_->set_dedicated_cores(transport_ == "spinning");
    if (!caches_.empty()) node_->set_caches(caches_);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      ranks.emplace_back([&, rank] { body(rank, memory(rank)); });
    }
    for (auto& rank : ranks) rank.join();
  }

  /// Runs body(context) on one thread a rank.
  void run(const std::function<void(engine::Context&)>& body) {
    run_memories([&](int, std::unique_ptr<transport::NodeMemory> memory) {
      auto context = join(std::move(memory), options_);
      ASSERT_TRUE(context.ok()) << context.status().message();
      body(*context.value());
    });
  }

 private:
  std::unique_ptr<transport::NodeMemory> memory(int rank) {
    if (transport_ != "shm") return node_->memory(rank);
    auto made = transport::make_shm_memory(job_, rank, size_, Deadline::after(60s));
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }

  const std::string transport_;
  const int size_;
  std::vector<uint64_t> caches_;
  std::string job_;
  std::unique_ptr<transport::FakeNode> node_;
  collective::GroupOptions options_;
};

/// Parametrised by transport and number of ranks.
class OnRanks : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  World world_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

inline std::string name_of_world(const testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}

}  // namespace tarantella

#define TNT_ON_WORLDS(name, suite, worlds, ...)                                                 \
  INSTANTIATE_TEST_SUITE_P(name, suite, testing::Combine(worlds, testing::Values(__VA_ARGS__)), \
                           ::tarantella::name_of_world)

/// TNT_SPINNING adds ranks that spin before they sleep, for ThreadSanitizer, which sees races on fake only.
#if defined(__SANITIZE_THREAD__)
#define TNT_ON_RANKS(suite, ...) TNT_ON_WORLDS(Transports, suite, testing::Values("fake"), __VA_ARGS__)
#define TNT_SPINNING(suite, ...) TNT_ON_WORLDS(Spinning, suite, testing::Values("spinning"), __VA_ARGS__)
#else
#define TNT_ON_RANKS(suite, ...) TNT_ON_WORLDS(Transports, suite, testing::Values("fake", "shm"), __VA_ARGS__)
#define TNT_SPINNING(suite, ...)
#endif
