#pragma once
// The plans of this process by id. A framework's graph can hold an id, but no pointer that stays valid.

#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "base/fork_count.h"
#include "engine/context.h"
#include "tarantella/tarantella.h"

namespace tarantella::capi {

/// Thread-safe.
class Plans {
 public:
  struct Entry {
    std::shared_ptr<engine::Context> context;
    std::shared_ptr<engine::Plan> plan;
  };

  /// False in a forked child, where threads that do not exist may hold the locks.
  bool usable() const { return fork_count_ == fork_count(); }

  tnt_plan add(std::shared_ptr<engine::Context> context, std::shared_ptr<engine::Plan> plan) {
    const std::unique_lock lock(mutex_);
    entries_[++last_] = {std::move(context), std::move(plan)};
    return last_;
  }

  /// The plan with that id; nullptr if there is none.
  std::shared_ptr<engine::Plan> find(tnt_plan id) const {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : found->second.plan;
  }

  /// Removes the entry with that id and returns it; an empty entry if there is none.
  Entry take(tnt_plan id) {
    const std::unique_lock lock(mutex_);
    auto node = entries_.extract(id);
    return node.empty() ? Entry{} : std::move(node.mapped());
  }

  /// Removes all plans that `context` made, and ends their tensors.
  void release_all(const engine::Context& context) {
    std::vector<Entry> released;
    {
      const std::unique_lock lock(mutex_);
      for (auto entry = entries_.begin(); entry != entries_.end();) {
        const bool found = entry->second.context.get() == &context;
        if (found) released.push_back(std::move(entry->second));
        entry = found ? entries_.erase(entry) : std::next(entry);
      }
    }
    for (const Entry& entry : released) entry.context->remove_plan(entry.plan);
  }

 private:
  const int fork_count_ = fork_count();
  mutable std::shared_mutex mutex_;
  std::unordered_map<tnt_plan, Entry> entries_;
  tnt_plan last_ = 0;
};

/// The only table. Never destroyed, since threads of a framework may still use it while the process ends.
inline Plans& plans() {
  static auto* all = new Plans;
  return *all;
}

}  // namespace tarantella::capi
