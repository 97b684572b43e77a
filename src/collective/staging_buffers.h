#pragma once
// The rounds of a blocking collective. In a round every rank writes at most one chunk to a staging buffer, waits for
// the other ranks, and reads their chunks. Each rank has two buffers and uses them in turn, so one wait per round is
// enough: when a rank writes to a buffer again, all ranks have been through a later round and have read it. A small
// payload travels inline, in the same cache line as the flag that the rank has come.
//
// In a round of slices each rank reduces one slice of all chunks: rank k reduces slice k. It writes the result into the
// staging buffer of rank k + 1, over slice k there. It has just read these cache lines, so writing them is cheap, and
// no other rank reads that slice. After a second wait all ranks read the results from there.
//
// The ranks of a large group exchange by flag groups (see flag_groups.h). A rank waits for those of its own flag group,
// then relays that they have come, with their inline bytes: each rank of another flag group polls one relay of it. A
// relay is an offer. If it is not there soon, a rank waits for the ranks of that flag group one by one, as in a small
// group, and so for the late one.

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/call_signature.h"
#include "collective/chunking.h"
#include "collective/node_group.h"

namespace tarantella::collective {

/// For one thread at a time. The group must outlive it.
class StagingBuffers {
 public:
  /// Collective, blocks. Errors: those of NodeGroup::map().
  static Result<std::unique_ptr<StagingBuffers>> create(NodeGroup& group);

  NodeGroup& group() { return group_; }
  int rank() const { return group_.rank(); }
  size_t size() const { return inputs_.size(); }
  /// The most bytes of a round; see chunk_bytes().
  size_t chunk() const { return chunk_; }
  /// Keeps the buffers mapped while a copy exists.
  std::shared_ptr<void> memory() const { return region_.owner; }
  /// How many rounds this rank has ended. Wraps around.
  uint32_t round() const { return round_; }

  /// This rank's buffer in the next round, for `bytes` bytes (at most chunk()).
  std::byte* own_chunk(size_t bytes) const { return data(rank(), round_ + 1, payload_round_ + 1, bytes); }
  /// Copies `bytes` bytes to own_chunk(bytes), but those of `unread`, which no other rank reads.
  void write(const std::byte* from, size_t bytes, Range unread = {0, 0});
  /// Collective. Ends the round: shows own_chunk() to all ranks and blocks until theirs are here. kMismatch on all
  /// ranks if the calls differ.
  Status exchange(const CallSignature& call);
  /// As exchange(), in a round without a payload: peer_chunk() and result_chunk() stay as they are. Not after a round
  /// of bytes that travel with a flag.
  Status sync_round(const CallSignature& call);
  /// Copies the bytes `part` of the `bytes` bytes of `rank` in the round that has just ended.
  void copy(size_t rank, size_t bytes, Range part, std::byte* to) {
    read(rank, peer_chunk(rank, bytes), part, to);
  }
  /// Copies `part` of what `rank` has put into its result_chunk(), after sync_round().
  void copy_result(size_t rank, size_t bytes, Range part, std::byte* to) {
    read(rank, result_chunk(rank, bytes), part, to);
  }
  /// Reduces the bytes `part` of the `bytes` bytes of all ranks, in rank order, where this rank's are those at `own`.
  void reduce(const CallSignature& call, const std::byte* own, size_t bytes, Range part, std::byte* to);
  /// In a round of slices: the chunk of `bytes` bytes into which `rank` writes the slice that it has reduced, that of
  /// the next rank in the last round with a payload. May be an input and the output of reduce(). Only for more
  /// bytes than travel inline.
  std::byte* result_chunk(size_t rank, size_t bytes) const {
    return data(next(rank), round_, payload_round_, bytes);
  }
  /// How many bytes of other ranks copy(), copy_result() and reduce() have read.
  uint64_t bytes_read() const { return bytes_read_; }
  /// The `bytes` bytes of `rank` in the round that has just ended. Valid until the next exchange().
  const std::byte* peer_chunk(size_t rank, size_t bytes) const;
  /// Pointers to all ranks' bytes from `offset` on, in rank order, where this rank's are those at `own`. Valid until
  /// the next call.
  const std::byte* const* inputs(const std::byte* own, size_t bytes, size_t offset = 0);

 private:
  struct Slot;
  struct Relay;

  StagingBuffers(NodeGroup& group, transport::Region region);
  Slot& slot(int rank, uint32_t round) const;
  /// The inline bytes of `round`, or more bytes of `payload_round`.
  std::byte* data(int rank, uint32_t round, uint32_t payload_round, size_t bytes) const;
  int next(size_t rank) const { return static_cast<int>((rank + 1) % size()); }
  void read(size_t rank, const std::byte* from, Range part, std::byte* to);
  /// Takes the lines that this rank will write next if it shows `bytes` bytes again.
  void prefetch_next(size_t bytes) const;
  Relay& relay(int rank, uint32_t round) const;
  /// Waits for all ranks, of which `await` awaits one. False if some make another call than `mine`; then others may
  /// still be on their way.
  template <typename Await>
  Result<bool> exchange_by_flag_groups(const Slot& mine, Await await);

  NodeGroup& group_;
  const size_t chunk_;
  const bool in_flag_groups_;
  const transport::Region region_;
  std::vector<const std::byte*> inputs_;
  std::vector<const Relay*>
      relays_;          ///< per flag group: the relay of the round that has just ended, if it came soon
  uint32_t round_ = 0;  ///< how many rounds this rank has ended, with or without a payload
  uint32_t payload_round_ = 0;  ///< how many rounds had a payload: these use the two buffers in turn
  size_t written_ = 0;          ///< how many bytes write() has shown in this round; 0 if it has left some out
  uint64_t bytes_read_ = 0;
};

}  // namespace tarantella::collective
