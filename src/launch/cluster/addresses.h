#pragma once
// How agents reach the coordinator over TCP: the port on which it listens, the addresses of its machine, and the first
// of these that answers.

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// A socket that listens on all addresses of this machine, and its port. Errors: kSystem.
struct Listener {
  Fd socket;
  int port = 0;

  static Result<Listener> open();
};

/// The addresses of this machine that other hosts may reach, as numbers, best first: the one from which the last of
/// `hosts` that is known here, and is not this machine, would be reached, and then all others.
std::vector<std::string> own_addresses(const std::vector<std::string>& hosts);

/// The first of these addresses, all with this port, that accepts a connection before the deadline. Blocks until then.
Result<Fd> connect_to(const std::vector<std::string>& addresses, int port, Deadline deadline);

}  // namespace tarantella::launch
