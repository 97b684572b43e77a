#pragma once
// The contexts of this process by id. A framework's graph can hold an id, but no pointer that stays valid.

#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "capi/context.h"

namespace tarantella::capi {

/// Thread-safe.
class Contexts {
 public:
  /// False in a forked child, where threads that do not exist may hold the lock.
  bool usable() const { return fork_count_ == fork_count(); }

  void add(tnt_context* context) {
    const std::unique_lock lock(mutex_);
    context->id = ++last_;
    entries_[last_] = context;
  }

  /// Waits for no call that is under way.
  void remove(const tnt_context* context) {
    const std::unique_lock lock(mutex_);
    entries_.erase(context->id);
  }

  /// Keeps a context from being destroyed; nullptr if there is none of that id.
  std::unique_ptr<Inside> enter(uint64_t id) {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : std::make_unique<Inside>(*found->second);
  }

 private:
  const int fork_count_ = fork_count();
  std::shared_mutex mutex_;
  std::unordered_map<uint64_t, tnt_context*> entries_;
  uint64_t last_ = 0;
};

/// The only table. Never destroyed, since threads of a framework may still use it while the process ends.
inline Contexts& contexts() {
  static auto* all = new Contexts;
  return *all;
}

}  // namespace tarantella::capi
