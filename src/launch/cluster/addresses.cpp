#include "launch/cluster/addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace tarantella::launch {
namespace {

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

Result<Listener> Listener::open() {
  for (const int family : {AF_INET6, AF_INET}) {
    Listener listener;
    listener.socket = Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.socket.valid()) continue;
    const int fd = listener.socket.get();
    if (family == AF_INET6) {
      const int off = 0;
      ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
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
