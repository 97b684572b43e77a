#pragma once
// What a leader tells another about its node.

#include <array>
#include <cstdint>

#include "base/status.h"
#include "collective/across/posts.h"

namespace tarantella::collective::across {

/// As it is sent, byte by byte.
struct News {
  int32_t code = 0;       ///< with `message`: why the node's communication has failed; kOk: it has not
  int32_t exit_code = 0;  ///< see Group::fail()
  int32_t left = 0;       ///< 1: it has left the job; no more news follow
  uint32_t calls = 0;     ///< of the leader; all earlier posts were said
  uint32_t has_post = 0;
  int32_t wants_stacks = 0;  ///< 1: see Members::want_stacks()
  Post post{};
  /// The number of the call that waits for the node that hears this, if nothing else is under way; 0: none.
  uint32_t call = 0;
  std::array<char, 212> call_name{};
  std::array<char, 64> host{};
  std::array<char, 768> message{};

  /// Ends the texts, whatever has arrived.
  void end_texts() { call_name.back() = host.back() = message.back() = '\0'; }
  /// Why the node's communication has failed, after end_texts().
  Status failure() const {
    const bool known = code >= 0 && code <= static_cast<int32_t>(Code::kSystem);
    return code == 0 ? Status() : Status(known ? static_cast<Code>(code) : Code::kPeerLost, message.data());
  }
};

}  // namespace tarantella::collective::across
