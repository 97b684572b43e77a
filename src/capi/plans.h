#pragma once
// The plans of this process by number. A framework's graph can hold a number, but no pointer that stays valid.

#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "base/forks.h"
#include "engine/communicator.h"
#include "tarantella/tarantella.h"

namespace tarantella::capi {

/// Thread-safe.
class Plans {
 public:
  struct Entry {
    std::shared_ptr<engine::Communicator> communicator;
    std::shared_ptr<engine::Plan> plan;
  };

  /// False in a forked child, where threads that do not exist may hold the locks.
  bool usable() const { return forks_ == forks(); }

  tnt_plan add(std::shared_ptr<engine::Communicator> communicator, std::shared_ptr<engine::Plan> plan) {
    const std::unique_lock lock(mutex_);
    entries_[++last_] = {std::move(communicator), std::move(plan)};
    return last_;
  }

  /// The plan with that number; nullptr if there is none.
  std::shared_ptr<engine::Plan> find(tnt_plan number) const {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(number);
    return found == entries_.end() ? nullptr : found->second.plan;
  }

  /// Removes the entry with that number and returns it; an empty entry if there is none.
  Entry take(tnt_plan number) {
    const std::unique_lock lock(mutex_);
    auto node = entries_.extract(number);
    return node.empty() ? Entry{} : std::move(node.mapped());
  }

  /// Removes all plans that `communicator` made, and ends their tensors.
  void release_all(const engine::Communicator& communicator) {
    std::vector<Entry> released;
    {
      const std::unique_lock lock(mutex_);
      for (auto entry = entries_.begin(); entry != entries_.end();) {
        const bool found = entry->second.communicator.get() == &communicator;
        if (found) released.push_back(std::move(entry->second));
        entry = found ? entries_.erase(entry) : std::next(entry);
      }
    }
    for (const Entry& entry : released) entry.communicator->remove_plan(entry.plan);
  }

 private:
  const int forks_ = forks();
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
