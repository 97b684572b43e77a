#pragma once
// The object behind a tnt_context, and how functions of the C interface use it.

#include <atomic>
#include <memory>
#include <mutex>

#include "base/fork_count.h"
#include "capi/failed_job_terminator.h"
#include "capi/guard.h"
#include "capi/stacks.h"
#include "capi/worker.h"
#include "engine/context.h"
#include "tarantella/tarantella.h"

struct tnt_context {
  explicit tnt_context(std::unique_ptr<tarantella::engine::Context> made) : context(std::move(made)) {}

  /// Shared, since a release of a plan may outlive the tnt_context.
  const std::shared_ptr<tarantella::engine::Context> context;
  const int fork_count = tarantella::fork_count();
  uint64_t id = 0;  ///< in contexts()
  tarantella::capi::Worker worker;
  std::mutex terminator_mutex;
  /// Guarded by terminator_mutex, as what follows.
  std::unique_ptr<tarantella::capi::FailedJobTerminator> terminator;
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

/// As guarded(), for a call on a context: `body` takes the engine's. kInvalidArgument for NULL and in a forked
/// child.
template <typename Body>
tnt_code on_context(tnt_context* context, Body body) noexcept {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("the context is NULL");
    TNT_RETURN_IF_ERROR(check_process(context->fork_count == fork_count()));
    const Inside inside(*context);
    return body(*context->context);
  });
}

}  // namespace tarantella::capi
