#pragma once
// Endpoints between ranks that are threads of this process, as bad as endpoints may be: messages are late, overtake one
// another as far as endpoint.h allows it, wait for their receives or do not, and a test can cut links. What happens to
// the k-th message of a link follows from the seed alone. Time is the receiver's: it passes with each of its calls of
// progress().

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "transport/endpoint.h"

namespace tarantella::transport {

/// Thread-safe. Must outlive its endpoints.
class FakeNetwork {
 public:
  /// A message comes with the receiver's next call of progress(), or is late by at most `latest` calls.
  FakeNetwork(int size, uint64_t seed, uint32_t latest = 20);

  std::unique_ptr<Endpoint> endpoint(int rank);

  /// From here on nothing passes between ranks `a` and `b`, and what is on its way is lost. Nobody is told.
  void cut(int a, int b);
  /// Cuts all links of `rank`: its machine is off.
  void cut(int rank);

  /// From here on `rank` does not return from progress(), as if a signal had stopped its process; resume() ends that.
  void stop(int rank);
  void resume(int rank);
  /// Whether a thread of `rank` is in progress() and does not return.
  bool holds(int rank) const;

  /// What `rank` has sent so far: messages whose send has begun.
  struct Sent {
    size_t messages = 0;
    size_t bytes = 0;
    bool operator==(const Sent&) const = default;
  };
  Sent sent(int rank) const;
  /// How many bytes of these lie in `memory`.
  size_t sent_from(int rank, std::span<const std::byte> memory) const;
  /// How many messages that may not leave unasked `rank` was ready to receive before it had begun to send as many with
  /// the same tag to the same rank.
  size_t received_first(int rank) const;

 private:
  friend class FakeEndpoint;

  struct Message {
    Transfer* waiting = nullptr;   ///< its send, which ends when the message is taken; nullptr: has ended
    std::vector<std::byte> bytes;  ///< of a send that does not wait
    uint64_t due = 0;
  };
  /// From one rank to another.
  struct Link {
    uint64_t seed = 0;
    uint64_t drawn = 0;
    std::map<Tag, std::deque<Message>> channels;
    bool cut = false;

    uint64_t random();
  };

  Link& link(int from, int to) {
    return links_[static_cast<size_t>(from) * ticks_.size() + static_cast<size_t>(to)];
  }

  const uint32_t latest_;
  mutable std::mutex mutex_;
  std::vector<Link> links_;
  std::vector<uint64_t> ticks_;                                ///< calls of progress(), by rank
  std::vector<std::vector<std::span<const std::byte>>> sent_;  ///< by rank
  std::vector<std::map<std::pair<int, Tag>, int>> ahead_;  ///< by rank: sends less receives that have begun
  std::vector<size_t> received_first_;                     ///< by rank
  std::vector<bool> stopped_;                              ///< by rank
  std::vector<int> held_;                                  ///< by rank: threads that do not return
  std::condition_variable resumed_;
};

}  // namespace tarantella::transport
