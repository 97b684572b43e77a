#pragma once
// The one rule for sockets that anybody can reach: who connects proves that it knows the job's secret, before a byte of
// it is believed or kept. The launcher's port and that of the first leader are such doors.
//
// The host sends 16 random bytes, the guest 16 of its own and a MAC of both by the secret, the host a MAC in turn: each
// knows then that the other one has the secret, which has not crossed the network, and no recorded word opens a door
// again. A guest has a few seconds for its 32 bytes; when there are many strangers, the oldest is dropped.

#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mac.h"

namespace tarantella::runtime {

/// Never blocks. Not thread-safe.
class Door {
 public:
  /// `listener` is a listening socket that does not block; owned from here on.
  Door(Fd listener, std::string_view secret) : listener_(std::move(listener)), key_(key_of(secret)) {}

  /// The descriptors for which to wait until they can be read: then call admit(), and at least once a second.
  std::vector<int> descriptors() const;
  /// The connections that have proved that they know the secret since the last call.
  std::vector<Fd> admit();

 private:
  struct Stranger {
    Fd socket;
    Tag128 question;
    Deadline deadline;
    std::array<char, 32> said{};
    size_t heard = 0;
  };

  bool accept_one();
  /// Nothing yet, or whether it has proved to know the secret.
  std::optional<bool> hear(Stranger& from);

  Fd listener_;
  const Tag128 key_;
  std::deque<Stranger> strangers_;  ///< the oldest first
};

/// The guest's side, over a connected stream socket. Blocks until the deadline at most; false if the host does not know
/// the secret, or does not know ours.
bool knock(int socket, std::string_view secret, Deadline deadline);

}  // namespace tarantella::runtime
