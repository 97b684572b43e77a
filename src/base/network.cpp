#include "base/network.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <span>

namespace tarantella {
namespace {

/// The bytes of an IPv4 address, also where it is written as an IPv6 one.
std::span<const unsigned char> bytes_of(const sockaddr* address) {
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return {reinterpret_cast<const unsigned char*>(&four), sizeof four};
  }
  if (address == nullptr || address->sa_family != AF_INET6) return {};
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  const std::span<const unsigned char> all(six.s6_addr);
  return IN6_IS_ADDR_V4MAPPED(&six) ? all.last(4) : all;
}

}  // namespace

std::string device_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ifaddrs* raw = nullptr;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0 || ::getifaddrs(&raw) != 0)
    return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> devices(raw, ::freeifaddrs);
  const auto wanted = bytes_of(reinterpret_cast<const sockaddr*>(&own));
  for (const ifaddrs* each = devices.get(); each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_LOOPBACK) != 0 || wanted.empty()) continue;
    const auto bytes = bytes_of(each->ifa_addr);
    if (std::equal(bytes.begin(), bytes.end(), wanted.begin(), wanted.end())) return each->ifa_name;
  }
  return "";
}

Status has_device(const std::string& name) {
  if (::if_nametoindex(name.c_str()) != 0) return {};
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> devices(::if_nameindex(),
                                                                                    ::if_freenameindex);
  std::string known;
  for (const auto* each = devices.get(); each != nullptr && each->if_index != 0; ++each)
    known += text(known.empty() ? "" : ", ", each->if_name);
  return {Code::kInvalidArgument, text("this machine has no network device '", name, "' (", kDeviceVariable,
                                       "); it has ", known.empty() ? "none" : known)};
}

}  // namespace tarantella
