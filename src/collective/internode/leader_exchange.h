#pragma once
// The part of a blocking collective that goes from node to node. The leaders tell one another which call they make,
// with a small payload inline: in step k a leader passes on what it knows to the one 2^k nodes further, so after
// log2 M steps of one message each all know all (J. Bruck et al., "Efficient algorithms for all-to-all communications
// in multiport message-passing systems", 1997). A larger payload follows directly from node to node, in shards: shard
// j of M is node j's. Nothing depends on which message comes first, or on how a call is cut.

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/round.h"
#include "collective/call_signature.h"
#include "collective/chunking.h"
#include "collective/internode/leader_link.h"

namespace tarantella::collective::internode {

/// The most bytes of a node that travel inline with its call. The limit falls with the number of nodes, since every
/// node receives the bytes of all. A job of two ranks has a higher limit, one chunk: both are leaders, so no other rank
/// waits for them. The same on all ranks.
inline size_t inline_limit(const NodeMap& nodes) {
  if (nodes.ranks() == 2) return chunk_bytes(1);
  return size_t{64} * 1024 / (nodes.count() == 2 ? 1 : nodes.count()) / 64 * 64;
}

/// What leaders do in a call, for error messages.
std::string describe_exchange(const CallSignature& call);

/// For the thread that makes the leader's calls. The link must outlive it.
class LeaderExchange {
 public:
  explicit LeaderExchange(LeaderLink& link);

  size_t node_index() const { return link_.node_index(); }
  size_t nodes() const { return segments_.size(); }
  /// The shard of `bytes` bytes that is that of `node`; ends at multiples of 64 bytes.
  Range shard_of(size_t bytes, size_t node) const { return slice_of(bytes, node, nodes()); }

  /// Where the payload of the next call goes, of inline_limit() bytes at most. 16-byte aligned.
  std::byte* inline_payload();
  /// Collective over the leaders. Blocks until all make a call, and gives each the first `bytes` bytes of the others'
  /// inline_payload(), of which every node may have another number. kMismatch on all nodes if their calls differ.
  Status exchange_calls(const CallSignature& call, size_t bytes);
  /// The payload of each node in the last exchange_calls(); that of this node is inline_payload(). Valid until the
  /// next.
  const std::byte* inline_payload_of(size_t node) const { return segments_[node] + sizeof(Head); }

  struct Outgoing {
    size_t node;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    size_t node;
    std::span<std::byte> bytes;
  };
  using Transfers = std::vector<transport::TransferPtr>;
  /// Starts to send and receive. Every node makes calls that fit. `owner` keeps the memory. await() must follow.
  Transfers start(MessageTag tag, const std::vector<Outgoing>& sends, const std::vector<Incoming>& receives,
                  const std::shared_ptr<const void>& owner);
  /// Blocks until all messages have left and come. Without messages it returns at once.
  Status await(const Transfers& transfers, const CallSignature& call);
  /// start() and await().
  Status send_receive(MessageTag tag, const std::vector<Outgoing>& sends,
                      const std::vector<Incoming>& receives, const std::shared_ptr<const void>& owner,
                      const CallSignature& call);

  /// Memory for what comes in: that of the last call where nothing else keeps it.
  std::shared_ptr<std::byte[]> receive_buffer(size_t bytes);

 private:
  /// Precedes the payload of a node. A segment is both, up to a multiple of 64 bytes; a message has segments.
  struct Head {
    uint64_t hash;   ///< of the call
    uint64_t bytes;  ///< how many follow
    std::array<uint64_t, 6> padding{};
  };
  /// A call in full.
  struct Details {
    Header header;
    Name name;
  };
  using Buffer = std::shared_ptr<std::byte[]>;
  /// A message from the leader `distance` nodes before this one, with the segments of as many nodes, and one to the
  /// leader as many nodes after it.
  struct BruckStep {
    size_t distance;
    size_t segments;
    size_t most_bytes;
    Buffer outgoing, incoming;
  };

  static const Head& head_of(const std::byte* segment) { return *reinterpret_cast<const Head*>(segment); }
  static size_t segment_bytes(size_t bytes) { return sizeof(Head) + round_up(bytes, 64); }
  /// The node `distance` before this one.
  size_t before(size_t distance) const { return (node_index() + nodes() - distance) % nodes(); }
  /// Puts the segments that the next leader lacks into step.outgoing; returns their bytes.
  size_t pack(const BruckStep& step);
  /// Notes where the segments of a message are. False if they are not `bytes` bytes.
  bool unpack(const BruckStep& step, size_t bytes);
  Status explain(const CallSignature& call, const Header& header);

  LeaderLink& link_;
  const Buffer own_segment_;  ///< the segment of this node, which the first step sends from where it is
  std::vector<BruckStep> steps_;
  std::vector<const std::byte*> segments_;  ///< by node
  Buffer receive_buffer_;
  size_t receive_buffer_bytes_ = 0;
};

}  // namespace tarantella::collective::internode
