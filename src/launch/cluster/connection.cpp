#include "launch/cluster/connection.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tarantella::launch {
namespace {

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

Connection::Connection(Fd socket) : socket_(std::move(socket)) {
  const int fd = socket_.get();
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>((kPeerTimeout - 2s) / 2s));
}

void Connection::send(Message::Kind kind, std::string_view content) {
  if (!closed()) pending_ += frame(kind, content);
}

void Connection::watch(Poller& poller, std::function<void()> handler, bool reading_paused) {
  if (closed()) return;
  if (!idle()) poller.add(fd(), POLLOUT, [this] { write_some(); });
  if (!reading_paused) poller.add(fd(), POLLIN, std::move(handler));
}

void Connection::write_some() {
  while (!idle()) {
    const ssize_t bytes = ::send(fd(), pending_.data() + written_, pending_.size() - written_, MSG_NOSIGNAL);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno != EAGAIN) return close();
    if (bytes < 0) break;
    written_ += static_cast<size_t>(bytes);
  }
  pending_.erase(0, std::exchange(written_, 0));
}

std::vector<Message> Connection::read() {
  std::vector<Message> messages = std::exchange(put_back_, {});
  char buffer[64 * 1024];
  for (int reads = 0; reads < 16 && !closed(); ++reads) {
    const ssize_t bytes = ::recv(fd(), buffer, sizeof buffer, 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) break;
    if (bytes <= 0) {
      close();
      break;
    }
    for (Message& message : reader_.add({buffer, static_cast<size_t>(bytes)})) {
      messages.push_back(std::move(message));
    }
    if (reader_.broken()) close();
  }
  return messages;
}

void Connection::check() {
  // Keepalive is silent while data is on its way. A peer with no room for more still confirms what has arrived.
  tcp_info info{};
  socklen_t size = sizeof info;
  if (closed() || ::getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  if (info.tcpi_unacked > 0 && std::chrono::milliseconds(info.tcpi_last_ack_recv) > kPeerTimeout) close();
}

void Connection::flush(Deadline deadline) {
  while (!idle() && !deadline.passed()) {
    pollfd writable{fd(), POLLOUT, 0};
    if (::poll(&writable, 1, std::min(deadline.left_ms(), 1000)) > 0) write_some();
    check();
  }
}

void Connection::close_gracefully(Deadline deadline, const std::function<void(const Message&)>& handler) {
  flush(deadline);
  if (!idle()) close();
  for (; !closed(); check()) {
    for (const Message& message : wait_for_messages(Deadline::after(1s))) handler(message);
  }
}

std::vector<Message> Connection::wait_for_messages(Deadline deadline) {
  std::vector<Message> messages = std::exchange(put_back_, {});
  while (messages.empty() && !closed() && !deadline.passed()) {
    pollfd readable{fd(), POLLIN, 0};
    if (::poll(&readable, 1, deadline.left_ms()) > 0) messages = read();
  }
  return messages;
}

}  // namespace tarantella::launch
