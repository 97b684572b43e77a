#include "launch/hosts/this_host.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

#include "base/host.h"

namespace tarantella::launch {
namespace {

std::string without_domain(const std::string& name) { return name.substr(0, name.find('.')); }

bool same_address(const sockaddr* one, const sockaddr* other) {
  if (other == nullptr || one->sa_family != other->sa_family) return false;
  if (one->sa_family == AF_INET) {
    const auto *a = reinterpret_cast<const sockaddr_in*>(one),
               *b = reinterpret_cast<const sockaddr_in*>(other);
    return a->sin_addr.s_addr == b->sin_addr.s_addr;
  }
  if (one->sa_family != AF_INET6) return false;
  const auto *a = reinterpret_cast<const sockaddr_in6*>(one),
             *b = reinterpret_cast<const sockaddr_in6*>(other);
  return std::memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0;
}

bool is_own_address(const sockaddr* address) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> own(raw, ::freeifaddrs);
  for (const ifaddrs* each = own.get(); each != nullptr; each = each->ifa_next) {
    if (same_address(address, each->ifa_addr)) return true;
  }
  return false;
}

}  // namespace

bool is_this_host(const std::string& name) {
  const std::string own = host_name();
  if (name == "localhost" || name == own) return true;
  // node1 and node1.cluster are one host, node1.here and node1.there are two.
  const bool has_domain = name.find('.') != std::string::npos, own_has = own.find('.') != std::string::npos;
  if (has_domain != own_has && without_domain(name) == without_domain(own)) return true;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &wanted, &raw) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(raw, ::freeaddrinfo);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (is_own_address(each->ai_addr)) return true;
  }
  return false;
}

}  // namespace tarantella::launch
