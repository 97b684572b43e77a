#include "base/fork_count.h"

#include <pthread.h>

#include <atomic>

namespace tarantella {
namespace {

std::atomic<int> count{0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
[[maybe_unused]] const int kRegistered = ::pthread_atfork(nullptr, nullptr, [] { ++count; });

}  // namespace

int fork_count() { return count.load(std::memory_order_relaxed); }

}  // namespace tarantella
