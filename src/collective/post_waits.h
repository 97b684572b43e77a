#pragma once
// Waits for what other ranks post on their boards.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/status.h"
#include "collective/board.h"
#include "transport/memory.h"

namespace tarantella::collective {

/// A rank that posts, as one that waits for it sees it.
struct Poster {
  Board& board;
  int rank;  ///< in the job
  /// Whether it has left, or has made a later call than the one that waits. Then its earlier posts are on the board.
  std::function<bool()> went_on;
  /// Called between two looks: an error ends the wait.
  std::function<Status()> check;
};

/// One rank's waits. For one thread at a time.
class PostWaits {
 public:
  /// As Group::await_post(), where this rank, which has `memory`, has made `calls` calls. Does not look for failures
  /// before `poster.check()` does.
  Result<uint32_t> await(transport::Memory& memory, const Poster& poster, const std::string& name,
                         uint32_t calls);

 private:
  uint32_t calls_ = 0;                     ///< at the last wait
  std::map<std::string, uint32_t> names_;  ///< how often each was waited for since
};

}  // namespace tarantella::collective
