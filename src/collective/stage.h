#pragma once
// The rounds of a blocking collective. In a round every rank writes at most one chunk to its stage, waits for the other
// ranks, and reads their chunks. Each rank has two stages and uses them in turn, so one wait per round is enough: when
// a rank writes to a stage again, all ranks have been through a later round and have read it. A few bytes travel in the
// same cache line as the signal that the rank has come.
//
// In a round of slices each rank reduces one slice of all chunks, and puts the result where the next rank has shown
// that slice: reading has brought these lines to its cache, and to write other ones would cost as much again. After a
// second wait all ranks read the results from there.
//
// The ranks of a large group meet in blocks (see blocks.h). A rank waits for those of its own block, then relays that
// they have come, with their few bytes: each rank of another block looks at one relay of it. A relay is an offer. If it
// is not there soon, a rank waits for the ranks of that block one by one, as in a small group, and so for the late one.

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/agreement.h"
#include "collective/group.h"
#include "collective/slices.h"

namespace tarantella::collective {

/// For one thread at a time. The group must outlive it.
class Stage {
 public:
  /// Collective, blocks. Errors: those of Group::map().
  static Result<std::unique_ptr<Stage>> create(Group& group);

  Group& group() { return group_; }
  int rank() const { return group_.rank(); }
  size_t size() const { return inputs_.size(); }
  /// The most bytes of a round; see chunk_bytes().
  size_t chunk() const { return chunk_; }
  /// Keeps the stages mapped while a copy exists.
  std::shared_ptr<void> memory() const { return region_.owner; }
  /// How many rounds this rank has ended. Wraps around.
  uint32_t round() const { return round_; }

  /// This rank's stage in the next round, for `bytes` bytes (at most chunk()).
  std::byte* own(size_t bytes) const { return data(rank(), round_ + 1, turn_ + 1, bytes); }
  /// Copies `bytes` bytes to own(bytes), but those of `unread`, which no other rank reads.
  void put(const std::byte* from, size_t bytes, Range unread = {0, 0});
  /// Collective. Ends the round: shows own() to all ranks and blocks until theirs are here. kMismatch on all ranks if
  /// the calls differ.
  Status agree(const Call& call);
  /// As agree(), in a round that shows nothing: of() and reduced() stay as they are. Not after a round of bytes that
  /// travel with a signal.
  Status agree_again(const Call& call);
  /// Copies the bytes `part` of the `bytes` bytes of `rank` in the round that has just ended.
  void copy(size_t rank, size_t bytes, Range part, std::byte* to) { read(rank, of(rank, bytes), part, to); }
  /// Copies `part` of what `rank` has put into its reduced(), after agree_again().
  void copy_reduced(size_t rank, size_t bytes, Range part, std::byte* to) {
    read(rank, reduced(rank, bytes), part, to);
  }
  /// Reduces the bytes `part` of the `bytes` bytes of all ranks, in rank order, where this rank's are those at `own`.
  void reduce(const Call& call, const std::byte* own, size_t bytes, Range part, std::byte* to);
  /// Where `rank` puts the slice of `bytes` bytes that it has reduced: among what the next rank has shown in the last
  /// round that showed something. May be an input and the output of reduce(). For more bytes than travel with a signal.
  std::byte* reduced(size_t rank, size_t bytes) const { return data(next(rank), round_, turn_, bytes); }
  /// How many bytes of other ranks copy(), copy_reduced() and reduce() have read.
  uint64_t bytes_read() const { return bytes_read_; }
  /// The `bytes` bytes of `rank` in the round that has just ended. Valid until the next agree().
  const std::byte* of(size_t rank, size_t bytes) const;
  /// Pointers to all ranks' bytes from `offset` on, in rank order, where this rank's are those at `own`. Valid until
  /// the next call.
  const std::byte* const* inputs(const std::byte* own, size_t bytes, size_t offset = 0);

 private:
  struct Slot;
  struct Relay;

  Stage(Group& group, transport::Region region);
  Slot& slot(int rank, uint32_t round) const;
  /// The few bytes of `round`, or more bytes of `turn`.
  std::byte* data(int rank, uint32_t round, uint32_t turn, size_t bytes) const;
  int next(size_t rank) const { return static_cast<int>((rank + 1) % size()); }
  void read(size_t rank, const std::byte* from, Range part, std::byte* to);
  /// Takes the lines that this rank will write next if it shows `bytes` bytes again.
  void prefetch_next(size_t bytes) const;
  Relay& relay(int rank, uint32_t round) const;
  /// Meets all ranks, of which `await` awaits one. False if some make another call than `mine`; then others may still
  /// be on their way.
  template <typename Await>
  Result<bool> meet_in_blocks(const Slot& mine, Await await);

  Group& group_;
  const size_t chunk_;
  const bool in_blocks_;
  const transport::Region region_;
  std::vector<const std::byte*> inputs_;
  std::vector<const Relay*>
      relays_;  ///< per block: the relay of the round that has just ended, if it came soon
  uint32_t round_ = 0;
  uint32_t turn_ = 0;  ///< the rounds that showed something, counted: they use the two stages in turn
  size_t put_ = 0;     ///< how many bytes put() has shown in this round; 0 if it has left some out
  uint64_t bytes_read_ = 0;
};

}  // namespace tarantella::collective
