#pragma once
// The one rule for sockets that anybody can reach: who connects proves that it knows the job's secret, before a byte of
// it is believed or kept. The launcher and the first leader of a job listen so.
//
// The server sends 16 random bytes, the challenge; the client 16 of its own and a MAC of both by the secret; the server
// a MAC in turn. Each knows then that the other one has the secret, which has not crossed the network, and what was
// recorded proves nothing again. A client has a few seconds for its 32 bytes; when too many connections have not proved
// anything yet, the oldest is dropped.

#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mac.h"

namespace tarantella::runtime {

/// Never blocks. Not thread-safe.
class AuthenticatedListener {
 public:
  /// `listener` is a listening socket that does not block; owned from here on.
  AuthenticatedListener(Fd listener, std::string_view secret)
      : listener_(std::move(listener)), key_(key_of(secret)) {}

  /// The descriptors for which to wait until they can be read: then call accept(), and at least once a second.
  std::vector<int> descriptors() const;
  /// The connections that have proved that they know the secret since the last call.
  std::vector<Fd> accept();

 private:
  struct Unauthenticated {
    Fd socket;
    Tag128 challenge;
    Deadline deadline;
    std::array<char, 32> received{};
    size_t length = 0;
  };

  bool accept_one();
  /// Nothing yet, or whether it has proved to know the secret.
  std::optional<bool> read_proof(Unauthenticated& from);

  Fd listener_;
  const Tag128 key_;
  std::deque<Unauthenticated> unauthenticated_;  ///< the oldest first
};

/// The client's side, over a connected stream socket. Blocks until the deadline at most; false if the server does not
/// know the secret, or does not know ours.
bool authenticate(int socket, std::string_view secret, Deadline deadline);

}  // namespace tarantella::runtime
