#pragma once

#include <string>

namespace tarantella {

/// The variable by which a user chooses the network device, and by which a launcher tells its ranks which one it is: a
/// name as `ip link` shows it.
constexpr char kDeviceVariable[] = "TNT_SOCKET_IFNAME";

/// The network device that has the local address of a connected TCP socket, such as eth0; empty if none is known, and
/// for a connection within this machine.
std::string device_of(int socket);

}  // namespace tarantella
