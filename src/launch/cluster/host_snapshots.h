#pragma once
// Snapshots of training on several hosts, between two attempts of a job: the launcher of each host keeps those of its
// ranks, the coordinator fetches the newest from a host that is left, and rank 0 of the next attempt gets it.

#include "base/clock.h"
#include "launch/cluster/connection.h"
#include "launch/ranks/snapshot_memory.h"

namespace tarantella::launch {

/// How long a peer may take for a piece of a snapshot.
constexpr Duration kSnapshotStall = 20s;

/// Sends the newest snapshot as kSnapshot, in pieces, and then kSnapshotEnd; only the latter if there is none. Blocks
/// until all is sent. Closes the connection to a peer that takes nothing for kSnapshotStall.
void send_snapshot(const SnapshotMemory& memory, Connection& peer);

/// Keeps what the peer sends by send_snapshot(). Blocks until it is there; false if the peer is gone or sends nothing
/// for kSnapshotStall, or if there is no memory for it. Later messages stay with the connection.
bool receive_snapshot(SnapshotMemory& memory, Connection& peer);

/// Tells the coordinator which snapshot this host has: kSnapshotNumber, if there is one.
void announce_snapshot(const SnapshotMemory& memory, Connection& coordinator);

}  // namespace tarantella::launch
