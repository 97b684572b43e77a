#pragma once

#include <string>

#include "base/status.h"

namespace tarantella {

/// The variable by which a user chooses the network device, and by which a launcher tells its ranks which one it is: a
/// name as `ip link` shows it.
constexpr char kDeviceVariable[] = "TNT_SOCKET_IFNAME";

/// The network device that has the local address of a connected TCP socket, such as eth0; empty if none is known, and
/// for a connection within this machine.
std::string device_of(int socket);

/// Whether this machine has a network device of this name. Errors: kInvalidArgument, which names those that it has.
Status has_device(const std::string& name);

}  // namespace tarantella
