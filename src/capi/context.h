#pragma once
// The object behind a tnt_context, and how functions of the C interface use it.

#include <atomic>
#include <memory>
#include <mutex>

#include "base/forks.h"
#include "capi/awake.h"
#include "capi/ending.h"
#include "capi/guard.h"
#include "capi/stacks.h"
#include "capi/worker.h"
#include "engine/cluster.h"
#include "engine/communicator.h"
#include "tarantella/tarantella.h"

struct tnt_context {
  explicit tnt_context(std::unique_ptr<tarantella::engine::Communicator> made)
      : communicator(std::move(made)) {}
  explicit tnt_context(std::unique_ptr<tarantella::engine::Cluster> made)
      : communicator(made->node()), cluster(std::move(made)) {}

  /// Runs body(*cluster) in a job on several nodes, body(*communicator) otherwise: what both can do has the same names.
  template <typename Body>
  auto on_all_ranks(Body body) const {
    return cluster == nullptr ? body(*communicator) : body(*cluster);
  }
  int rank() const {
    return on_all_ranks([](auto& ranks) { return ranks.rank(); });
  }
  int size() const {
    return on_all_ranks([](auto& ranks) { return ranks.size(); });
  }

  const std::shared_ptr<tarantella::engine::Communicator>
      communicator;  ///< of this rank's node; shared, since a release of a plan may outlive the context
  const std::unique_ptr<tarantella::engine::Cluster> cluster;  ///< in a job on several nodes
  const int forks = tarantella::forks();
  uint64_t number = 0;  ///< in contexts()
  tarantella::capi::KeptAwake awake;
  tarantella::capi::Worker worker;
  std::mutex ending_mutex;
  std::unique_ptr<tarantella::capi::Ending> ending;  ///< guarded by ending_mutex, as what follows
  std::unique_ptr<tarantella::capi::Stacks> stacks;
  std::atomic<int> calls{0};  ///< running now, on any thread
};

namespace tarantella::capi {

/// Counts a running call. The context is not destroyed while there is one.
class Inside {
 public:
  explicit Inside(tnt_context& context) : context_(context) {
    context_.calls.fetch_add(1, std::memory_order_acquire);
  }
  ~Inside() { context_.calls.fetch_sub(1, std::memory_order_release); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  tnt_context& context() const { return context_; }

 private:
  tnt_context& context_;
};

/// As guarded(), for a call on a context: `body` takes its communicator. kInvalidArgument for NULL and in a forked
/// child.
template <typename Body>
tnt_code on_context(tnt_context* context, Body body) noexcept {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("the context is NULL");
    TNT_RETURN_IF_ERROR(check_process(context->forks == forks()));
    const Inside inside(*context);
    return body(*context->communicator);
  });
}

}  // namespace tarantella::capi
