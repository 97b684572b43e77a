#pragma once
// Point to point between the ranks of a job that share no memory. An endpoint carries bytes and does not know what they
// mean.
//
// Any thread starts transfers; none of these calls blocks. One thread at a time makes progress: bytes leave or arrive
// only in progress(), so a library that must not be entered by two threads can carry them. Nothing here waits for a
// peer, except close() and await(), which have a deadline.
//
// Messages of one pair of ranks with one tag arrive in the order of their send(), and receives take them in the order
// of their receive(). Messages with other tags, or of other ranks, may overtake them. A send may wait for its receive,
// so a rank must not finish one before it starts the other. What arrives before its receive may be kept in memory of
// the process without limit: start receives early.
//
// An endpoint need not notice that a peer is gone or that a link is cut: its transfers then stay open until they are
// cancelled. A transfer whose endpoint notices ends with kPeerLost.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tarantella::transport {

/// Tells the messages of one pair of ranks apart; below kTags.
using Tag = uint32_t;
constexpr Tag kTags = 32'768;  // what every MPI has
/// The lowest of the pre-posted tags. No message with one is longer than its receive, and a receive is cancelled only
/// where nothing more comes with its tag. It may then end only with the endpoint. So a library can write the bytes to
/// their place at once, without a rendezvous.
constexpr Tag kFirstPrepostedTag = 8;

/// Messages above this size, headers aside, use the rendezvous protocol. The clear-to-send queues behind data already
/// going to that rank, so in a large bidirectional exchange post the send before the receive; otherwise the two
/// directions run one after the other.
constexpr size_t kEagerLimit = size_t{256} << 10;

/// A message on its way. Thread-safe.
class Transfer {
 public:
  enum class Kind { kSend, kReceive };

  const Kind kind;
  const int peer;
  const Tag tag;

  /// Whether the endpoint has let go of the bytes. A receive's bytes are visible to the thread that finds it ended; a
  /// send that has ended well needs no more help of its rank than close(), but its peer may not have received it yet.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  /// How it has ended; valid from then on. Errors: kPeerLost; kMismatch if the message is longer than the receive;
  /// kInvalidArgument for a rank or tag that does not exist.
  const Status& status() const { return status_; }
  /// The length of the message; valid once it has ended well.
  size_t length() const { return length_; }
  /// Whether it has ended well and, if it receives, with as many bytes as there was room for.
  bool completed_in_full() const { return ended() && status_.ok() && length_ == bytes_.size(); }
  /// As status(), but kMismatch for a message that was shorter than the receive. Valid once it has ended.
  Status error() const;

 private:
  friend class Endpoint;

  Transfer(Kind transfer_kind, int peer_rank, Tag message_tag, std::span<std::byte> bytes,
           std::shared_ptr<const void> owner)
      : kind(transfer_kind),
        peer(peer_rank),
        tag(message_tag),
        bytes_(bytes),
        owner_(std::move(owner)),
        length_(bytes.size()) {}

  const std::span<std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  size_t length_;
  uint64_t state_ = 0;  ///< for the implementation
  std::atomic<bool> cancelled_{false};
  Status status_;
  std::atomic<bool> ended_{false};
};
/// Whoever starts a transfer shares it with the endpoint.
using TransferPtr = std::shared_ptr<Transfer>;

/// One rank's end. Implementations override the protected functions, which only the thread that makes progress calls.
class Endpoint {
 public:
  Endpoint(int rank, int size) : rank_(rank), size_(size), received_(static_cast<size_t>(size)) {}
  /// Open transfers end with kPeerLost. Any thread, after all other calls. Does not wait for peers.
  virtual ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Starts to send `bytes` to rank `to` (which may be this rank). They must stay valid and unchanged until the
  /// transfer has ended; `owner` is kept until then. Any thread.
  TransferPtr send(int to, Tag tag, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  /// Starts to receive a message of at most bytes.size() bytes from rank `from`; otherwise as send().
  TransferPtr receive(int from, Tag tag, std::span<std::byte> bytes, std::shared_ptr<const void> owner);

  /// Gives a transfer up: it ends in a later progress() or in the destructor, with kPeerLost unless it is complete by
  /// then. A send whose peer may have seen a part of it may end only with the endpoint. Of the sends to a rank with one
  /// tag, cancel the last one first: none may arrive in the place of one before it. A cancelled receive takes no
  /// message, unless it was pre-posted. Any thread.
  void cancel(const TransferPtr& transfer);

  /// Moves what can be moved now. Returns the number of transfers that have ended. Any thread makes progress, with this
  /// function, received() and close(); not while another thread is in one of them.
  size_t progress();
  /// The number of messages that have come from `peer`. See progress().
  size_t received(int peer) const { return received_[static_cast<size_t>(peer)]; }
  /// The number of transfers that have not ended. Any thread.
  size_t open() const { return open_count_.load(std::memory_order_relaxed); }
  /// Calls progress() until all sends have ended or the deadline has passed, then cancels all transfers. No transfer
  /// may be started afterwards. The last call of the thread that makes progress.
  void close(Deadline deadline);

 protected:
  /// A transfer has been started. Those of one peer, tag and kind begin in order.
  virtual void begin(Transfer& transfer) = 0;
  /// Called once in each progress(), before any progress_transfer().
  virtual void poll() {}
  /// Moves what can be moved of a transfer that has begun. True if it has ended; set_result() says how. Called
  /// in the order of begin().
  virtual bool progress_transfer(Transfer& transfer) = 0;
  /// A transfer that has begun is cancelled. True if the implementation does not touch its bytes any more; else
  /// progress_transfer() is called as before.
  virtual bool try_cancel(Transfer& transfer) = 0;
  /// The last call: the implementation may part from its peers, until the deadline.
  virtual void finish(Deadline) {}

  static std::span<std::byte> bytes_of(const Transfer& transfer) { return transfer.bytes_; }
  static uint64_t& state_of(Transfer& transfer) { return transfer.state_; }
  /// Stores how a transfer ends, before progress_transfer() returns true for it; only then ended() turns true. A send
  /// that ends well needs no call. `length` is that of the message.
  static void set_result(Transfer& transfer, size_t length) { transfer.length_ = length; }
  static void set_result(Transfer& transfer, Status status) { transfer.status_ = std::move(status); }
  /// What keeps the bytes valid; may be null.
  static const std::shared_ptr<const void>& owner_of(const Transfer& transfer) { return transfer.owner_; }
  /// The error of a transfer that was cancelled.
  static Status cancelled();
  /// The error of a receive of fewer bytes than the message has.
  static Status too_long(const Transfer& transfer, size_t length);

 private:
  TransferPtr start(Transfer::Kind kind, int peer, Tag tag, std::span<std::byte> bytes,
                    std::shared_ptr<const void> owner);
  /// Makes progress with it, and closes it if it has ended or is cancelled. Returns whether it was closed.
  bool close_if_ended(Transfer& transfer);
  void close_transfer(Transfer& transfer);

  const int rank_;
  const int size_;
  std::mutex mutex_;
  std::vector<TransferPtr> queued_;  ///< guarded by mutex_: not begun yet
  std::vector<TransferPtr> active_;  ///< for the thread that makes progress, as the next one
  std::vector<size_t> received_;     ///< by peer
  std::atomic<size_t> open_count_{0};
};

/// Makes progress until `transfer` has ended; returns how. kTimeout, and cancels it, when the deadline has passed.
Status await(Endpoint& endpoint, const TransferPtr& transfer, Deadline deadline);

}  // namespace tarantella::transport
