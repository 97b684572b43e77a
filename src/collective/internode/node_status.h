#pragma once
// What a leader tells another about its node.

#include <array>
#include <cstdint>

#include "base/status.h"
#include "collective/internode/remote_notifications.h"

namespace tarantella::collective::internode {

/// As it is sent, byte by byte.
struct NodeStatus {
  int32_t code = 0;       ///< with `message`: why the node's communication has failed; kOk: it has not
  int32_t exit_code = 0;  ///< see NodeGroup::fail()
  int32_t departed = 0;   ///< 1: it has left the job; no status follows
  uint32_t calls = 0;     ///< that the leader has made; all its earlier notifications were sent
  uint32_t has_notification = 0;
  int32_t wants_stacks = 0;  ///< 1: see RankTable::want_stacks()
  Notification notification{};
  /// Identifies the leader's wait for the node that receives this status, in a blocking call or an exclusive plan. 0:
  /// there is no such wait, or another operation of the leader is pending, too.
  uint32_t wait_id = 0;
  std::array<char, 212> wait_name{};
  std::array<char, 64> host{};
  std::array<char, 768> message{};

  /// Ends the texts, whatever has arrived.
  void end_texts() { wait_name.back() = host.back() = message.back() = '\0'; }
  /// Why the node's communication has failed, after end_texts().
  Status failure() const {
    const bool known = code >= 0 && code <= static_cast<int32_t>(Code::kSystem);
    return code == 0 ? Status() : Status(known ? static_cast<Code>(code) : Code::kPeerLost, message.data());
  }
};

}  // namespace tarantella::collective::internode
