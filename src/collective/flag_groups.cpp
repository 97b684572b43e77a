#include "collective/flag_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tarantella::collective {

FlagGroups::FlagGroups(int ranks) : groups_(1), places_(static_cast<size_t>(ranks)) {
  groups_[0].resize(places_.size());
  std::iota(groups_[0].begin(), groups_[0].end(), 0);
  number();
}

FlagGroups::FlagGroups(const std::vector<uint64_t>& caches) : places_(caches.size()) {
  size_t max_group_size = 1;
  while (max_group_size * max_group_size < caches.size()) ++max_group_size;
  std::map<uint64_t, std::vector<int>> by_cache;
  for (size_t rank = 0; rank < caches.size(); ++rank)
    by_cache[caches[rank]].push_back(static_cast<int>(rank));
  for (const auto& [cache, ranks] : by_cache) {
    const size_t parts = (ranks.size() + max_group_size - 1) / max_group_size;
    for (size_t part = 0; part < parts; ++part) {
      const size_t begin = ranks.size() * part / parts;
      const size_t end = ranks.size() * (part + 1) / parts;
      if (groups_.empty() || groups_.back().size() + end - begin > max_group_size) groups_.emplace_back();
      for (size_t i = begin; i < end; ++i) groups_.back().push_back(ranks[i]);
    }
  }
  number();
}

void FlagGroups::number() {
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (size_t place = 0; place < groups_[group].size(); ++place)
      places_[static_cast<size_t>(groups_[group][place])] = {group, place};
  }
}

size_t FlagGroups::largest() const {
  size_t largest = 0;
  for (const std::vector<int>& ranks : groups_) largest = std::max(largest, ranks.size());
  return largest;
}

}  // namespace tarantella::collective
