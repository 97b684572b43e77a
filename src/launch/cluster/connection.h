#pragma once
// One end of the TCP connection between the coordinator and an agent, and its messages; see protocol.h. Connections are
// made in addresses.h.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launch/cluster/protocol.h"
#include "launch/system/poller.h"

namespace tarantella::launch {

/// Never blocks. The kernel notices a host that is gone, or a cut link, within kPeerTimeout; a suspended peer is not
/// taken for dead: its kernel answers. Not thread-safe.
class Connection {
 public:
  static constexpr Duration kPeerTimeout = 8s;

  /// Takes over a connected stream socket.
  explicit Connection(Fd socket);

  int fd() const { return socket_.get(); }
  /// True when the peer has closed the connection or is gone, or after close(). What is pending is dropped then.
  bool closed() const { return !socket_.valid(); }
  void close() { socket_ = Fd(); }

  /// Queues a message.
  void send(Message::Kind kind, std::string_view content = {});
  /// True if nothing is queued.
  bool idle() const { return closed() || written_ == pending_.size(); }
  /// True if much is queued: make no more output.
  bool full() const { return !closed() && pending_.size() - written_ > 256 * 1024; }

  /// Waits for room for what is queued and, unless `reading_paused`, for messages: then `handler` should call read().
  void watch(Poller& poller, std::function<void()> handler, bool reading_paused = false);
  /// The messages that have arrived, those that were put back first.
  std::vector<Message> read();
  /// Keeps messages of the last read() for the next one. No descriptor becomes readable for them.
  void put_back(std::vector<Message> messages) { put_back_ = std::move(messages); }
  /// Closes the connection if what was sent is not confirmed for kPeerTimeout. Call it every second or so.
  void check();
  /// Blocks until nothing is queued or the deadline has passed.
  void flush(Deadline deadline);
  /// Sends what is queued, until the deadline, and blocks until the peer closes the connection or is gone: to close one
  /// in which bytes arrive drops what is on its way to the peer. Gives `handler` each message that arrives.
  void close_gracefully(Deadline deadline, const std::function<void(const Message&)>& handler);
  /// Blocks until a message has arrived, the connection is closed or the deadline has passed.
  std::vector<Message> wait_for_messages(Deadline deadline);

 private:
  void write_some();

  Fd socket_;
  std::string pending_;
  size_t written_ = 0;
  MessageReader reader_;
  std::vector<Message> put_back_;
};

}  // namespace tarantella::launch
