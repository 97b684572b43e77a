#include "launch/cluster/connection.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

namespace tarantella::launch {
namespace {

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

std::string number_of(const sockaddr* address, socklen_t size) {
  char name[NI_MAXHOST] = {};
  const int error = ::getnameinfo(address, size, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? name : "";
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& name, int port, int flags) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  if (::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) found = nullptr;
  return {found, ::freeaddrinfo};
}

/// The own address from which packets to `host` would go; sends none.
std::string address_towards(const std::string& host) {
  const Addresses found = look_up(host, 9, 0);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const Fd probe(::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    if (!probe.valid() || ::connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    if (::getsockname(probe.get(), address, &size) == 0) return number_of(address, size);
  }
  return "";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// Whether the connection is made before the deadline.
bool is_connected(int socket, Deadline deadline) {
  pollfd writable{socket, POLLOUT, 0};
  if (::poll(&writable, 1, deadline.left_ms()) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
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

Result<Listener> Listener::open() {
  for (const int family : {AF_INET6, AF_INET}) {
    Listener listener;
    listener.socket = Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.socket.valid()) continue;
    const int fd = listener.socket.get();
    if (family == AF_INET6) set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    sockaddr_storage own{};
    own.ss_family = static_cast<sa_family_t>(family);
    auto* address = reinterpret_cast<sockaddr*>(&own);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(fd, address, size) != 0 || ::listen(fd, 1024) != 0) continue;
    if (::getsockname(fd, address, &size) != 0) continue;
    listener.port = ntohs(family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(own).sin_port);
    return listener;
  }
  return Status::system("listen on a port", errno);
}

std::vector<std::string> own_addresses(const std::vector<std::string>& hosts) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& address) {
    const bool known = std::find(all.begin(), all.end(), address) != all.end();
    if (!address.empty() && !known) all.push_back(address);
  };
  for (size_t host = hosts.size(); host-- > 0 && all.empty();) {
    if (const std::string near = address_towards(hosts[host]); !is_loopback(near)) add(near);
  }
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> own(raw, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = own.get(); each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
      const std::string address =
          number_of(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (address.find('%') == std::string::npos) add(address);  // not of one link alone
    }
  }
  if (all.empty()) add("127.0.0.1");
  return all;
}

Result<Fd> connect_to(const std::vector<std::string>& addresses, int port, Deadline deadline) {
  std::string tried;
  do {
    for (const std::string& address : addresses) {
      const Addresses found = look_up(address, port, AI_NUMERICHOST);
      if (found == nullptr) continue;
      Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const bool may = socket.valid() && (::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0 ||
                                          errno == EINPROGRESS);
      const Deadline each =
          Deadline::after(std::min<Duration>(deadline.left(), addresses.size() > 1 ? 2s : 5s));
      if (may && is_connected(socket.get(), each)) return socket;
    }
    if (!deadline.passed()) ::poll(nullptr, 0, 100);
  } while (!deadline.passed());
  for (const std::string& address : addresses) tried += (tried.empty() ? "" : ", ") + address;
  return Status(Code::kTimeout, text("cannot reach the launcher at port ", port, " of ", tried,
                                     ": a firewall may be between the hosts"));
}

}  // namespace tarantella::launch
