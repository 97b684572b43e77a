#include "collective/blocks.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tarantella::collective {

Blocks::Blocks(int ranks) : blocks_(1), places_(static_cast<size_t>(ranks)) {
  blocks_[0].resize(places_.size());
  std::iota(blocks_[0].begin(), blocks_[0].end(), 0);
  number();
}

Blocks::Blocks(const std::vector<uint64_t>& caches) : places_(caches.size()) {
  size_t most = 1;
  while (most * most < caches.size()) ++most;
  std::map<uint64_t, std::vector<int>> by_cache;
  for (size_t rank = 0; rank < caches.size(); ++rank)
    by_cache[caches[rank]].push_back(static_cast<int>(rank));
  for (const auto& [cache, ranks] : by_cache) {
    const size_t parts = (ranks.size() + most - 1) / most;
    for (size_t part = 0; part < parts; ++part) {
      const size_t begin = ranks.size() * part / parts;
      const size_t end = ranks.size() * (part + 1) / parts;
      if (blocks_.empty() || blocks_.back().size() + end - begin > most) blocks_.emplace_back();
      for (size_t i = begin; i < end; ++i) blocks_.back().push_back(ranks[i]);
    }
  }
  number();
}

void Blocks::number() {
  for (size_t block = 0; block < blocks_.size(); ++block) {
    for (size_t place = 0; place < blocks_[block].size(); ++place)
      places_[static_cast<size_t>(blocks_[block][place])] = {block, place};
  }
}

size_t Blocks::largest() const {
  size_t most = 0;
  for (const std::vector<int>& ranks : blocks_) most = std::max(most, ranks.size());
  return most;
}

}  // namespace tarantella::collective
