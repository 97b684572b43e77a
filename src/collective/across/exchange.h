#pragma once
// The part of a blocking collective that goes from node to node. The leaders tell one another which call they make,
// with the bytes if they are few; many bytes follow directly from node to node, in parts: part j of M is node j's.
// Nothing depends on which message comes first, or on how a call is cut.

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/across/bridge.h"
#include "collective/agreement.h"
#include "collective/cuts.h"
#include "collective/slices.h"

namespace tarantella::collective::across {

/// The most bytes of a node that travel in the message that tells its call, so that one to each node is enough: the
/// fewer the more nodes there are, since every node gets them all, and a chunk between two ranks, of which none waits
/// for its leader. The same on all ranks.
inline size_t few_bytes(const Nodes& nodes) {
  if (nodes.ranks() == 2) return chunk_bytes(1);
  return size_t{64} * 1024 / (nodes.count() == 2 ? 1 : nodes.count()) / 64 * 64;
}

/// What leaders do in a call, for error messages.
std::string describe_exchange(const Call& call);

/// For the thread that makes the leader's calls. The bridge must outlive it.
class Exchange {
 public:
  explicit Exchange(Bridge& bridge);

  size_t node() const { return bridge_.node(); }
  size_t nodes() const { return incoming_.size(); }
  /// The part of `bytes` bytes that is that of `node`; ends at multiples of 64 bytes.
  Range part_of(size_t bytes, size_t node) const { return slice_of(bytes, node, nodes()); }

  /// Room for the few bytes of the next call. 16-byte aligned.
  std::byte* few();
  /// Collective over the leaders. Blocks until all make a call, and gives each the first `bytes` bytes of the others'
  /// few(). kMismatch on all nodes if their calls differ. All nodes of a call use the same `bytes`, or 0.
  Status meet(const Call& call, size_t bytes);
  /// The bytes of all nodes in the last meet(), by node; those of this node are at few(). Valid until the next one.
  const std::byte* few_of(size_t node) const;

  struct Outgoing {
    size_t node;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    size_t node;
    std::span<std::byte> bytes;
  };
  using Requests = std::vector<transport::Request>;
  /// Starts to send and receive. Every node makes calls that fit. `owner` keeps the memory. await() must follow.
  Requests start(Stream stream, const std::vector<Outgoing>& sends, const std::vector<Incoming>& receives,
                 const std::shared_ptr<const void>& owner);
  /// Blocks until all messages have left and come. Without messages it returns at once.
  Status await(const Requests& requests, const Call& call);
  /// Both.
  Status move(Stream stream, const std::vector<Outgoing>& sends, const std::vector<Incoming>& receives,
              const std::shared_ptr<const void>& owner, const Call& call);

  /// Memory for what comes: that of the last call where nothing else keeps it.
  std::shared_ptr<std::byte[]> room(size_t bytes);

 private:
  /// Precedes the few bytes.
  struct alignas(64) Head {
    uint64_t hash;  ///< of the call
  };
  /// A call in full.
  struct Details {
    Header header;
    Name name;
  };
  using Buffer = std::shared_ptr<std::byte[]>;

  /// The most bytes of a message that tells a call.
  size_t most_bytes() const { return sizeof(Head) + few_bytes(bridge_.nodes()); }
  Status explain(const Call& call, const Header& header);

  Bridge& bridge_;
  const Buffer outgoing_;
  std::vector<Buffer> incoming_;  ///< by node
  Buffer room_;
  size_t room_bytes_ = 0;
};

}  // namespace tarantella::collective::across
