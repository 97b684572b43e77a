#pragma once
// Connects the first ranks of a job's machines over TCP, where another program than our launcher has started the ranks:
// that of machine 0 listens on a host that all know, the others connect to it.

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace tarantella::runtime {

struct BootstrapOptions {
  std::string host;    ///< of machine 0: a name or an address
  std::string job_id;  ///< also the secret by which its leaders authenticate (authenticated_listener.h)
  std::string layout;  ///< the number of ranks of each machine, which all must know alike
  int node = 0;        ///< this machine
  int nodes = 1;
  Duration warn_every = 60s;
};

/// Blocks until the leaders of all machines are connected. Returns connections: on machine 0 that to machine k as
/// number k - 1, on others that to machine 0. The job_id gives the port: the first that is free of a few between
/// kFirstPort and kFirstPort + kPorts; who connects tries them all, and authenticates (authenticated_listener.h).
/// Errors: kTimeout at the deadline; kPeerLost if a leader that had come is gone; kMismatch for another version or
/// layout; kSystem, also if `host` stays unknown for ten seconds. Every leader that has come gets the error.
Result<std::vector<Fd>> bootstrap_leaders(const BootstrapOptions& options, Deadline deadline);

constexpr int kFirstPort = 20000, kPorts = 12000;

/// The port that machine 0 tries as number `attempt`, from 0 on.
int port_of(const std::string& job_id, int attempt);

}  // namespace tarantella::runtime
