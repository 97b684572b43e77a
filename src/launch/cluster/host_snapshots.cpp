#include "launch/cluster/host_snapshots.h"

#include <string>
#include <utility>
#include <vector>

namespace tarantella::launch {
namespace {

constexpr size_t kPiece = 1 << 20;  // bytes in a message

}  // namespace

void send_snapshot(const SnapshotMemory& memory, Connection& peer) {
  if (memory.newest() > 0) {
    off_t sent = 0;
    for (std::string piece; !peer.closed(); sent += static_cast<off_t>(piece.size())) {
      piece = memory.read_newest(sent, kPiece);
      if (piece.empty()) break;
      peer.send(Message::Kind::kSnapshot, piece);
      peer.flush(Deadline::after(kSnapshotStall));
      if (!peer.idle()) peer.close();
    }
  }
  peer.send(Message::Kind::kSnapshotEnd);
  peer.flush(Deadline::after(kSnapshotStall));
}

bool receive_snapshot(SnapshotMemory& memory, Connection& peer) {
  memory.clear_older();
  for (;;) {
    std::vector<Message> messages = peer.wait_for_messages(Deadline::after(kSnapshotStall));
    if (messages.empty()) return false;
    for (auto each = messages.begin(); each != messages.end(); ++each) {
      if (each->kind == Message::Kind::kSnapshot && !memory.append_to_older(each->content)) return false;
      if (each->kind != Message::Kind::kSnapshotEnd) continue;
      messages.erase(messages.begin(), each + 1);
      peer.put_back(std::move(messages));
      return true;
    }
  }
}

void announce_snapshot(const SnapshotMemory& memory, Connection& coordinator) {
  if (const uint64_t newest = memory.newest(); newest > 0)
    coordinator.send(Message::Kind::kSnapshotNumber, encode(newest));
}

}  // namespace tarantella::launch
