#pragma once
// The object behind a tnt_context, and how functions of the C interface use it.

#include <atomic>
#include <memory>

#include "base/forks.h"
#include "capi/awake.h"
#include "capi/guard.h"
#include "engine/communicator.h"
#include "tarantella/tarantella.h"

struct tnt_context {
  explicit tnt_context(std::unique_ptr<tarantella::engine::Communicator> made)
      : communicator(std::move(made)) {}

  const std::shared_ptr<tarantella::engine::Communicator>
      communicator;  ///< shared, since a release of a plan may outlive the context
  const int forks = tarantella::forks();
  tarantella::capi::KeptAwake awake;
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
