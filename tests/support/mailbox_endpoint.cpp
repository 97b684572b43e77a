#include "support/mailbox_endpoint.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace tarantella::transport {
namespace {

constexpr size_t kMailbox = size_t{32} * 1024;  // bytes

/// One rank writes, another reads. Zeroed at first.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::byte ring[kMailbox];

  /// Copies as much of `bytes` as there is room for. Returns how much.
  size_t write(std::span<const std::byte> bytes) {
    const uint64_t begin = written.load(std::memory_order_relaxed);
    const size_t available = kMailbox - (begin - read.load(std::memory_order_acquire));
    const size_t length = std::min(bytes.size(), available);
    if (length == 0) return 0;
    const size_t first = std::min(length, kMailbox - begin % kMailbox);
    std::memcpy(ring + begin % kMailbox, bytes.data(), first);
    if (length != first) std::memcpy(ring, bytes.data() + first, length - first);
    written.store(begin + length, std::memory_order_release);
    return length;
  }

  /// Fills `bytes` with as much as has come. Returns how much.
  size_t take(std::span<std::byte> bytes) {
    const uint64_t begin = read.load(std::memory_order_relaxed);
    const size_t length = std::min<size_t>(bytes.size(), written.load(std::memory_order_acquire) - begin);
    if (length == 0) return 0;
    const size_t first = std::min(length, kMailbox - begin % kMailbox);
    std::memcpy(bytes.data(), ring + begin % kMailbox, first);
    if (length != first) std::memcpy(bytes.data() + first, ring, length - first);
    read.store(begin + length, std::memory_order_release);
    return length;
  }
};

/// Precedes each message.
struct Front {
  uint64_t length;
  uint64_t tag;
};

/// A message that comes in pieces.
struct Incoming {
  Front front{};
  size_t of_front = 0;  ///< bytes that have come
  std::vector<std::byte> bytes;
  size_t of_bytes = 0;
};

class MailboxEndpoint final : public Endpoint {
 public:
  MailboxEndpoint(std::shared_ptr<NodeMemory> memory, Region region)
      : Endpoint(memory->rank(), memory->size()),
        memory_(std::move(memory)),
        region_(std::move(region)),
        incoming_(static_cast<size_t>(size())),
        full_(static_cast<size_t>(size())) {}

  static size_t bytes(int ranks) {
    return static_cast<size_t>(ranks) * static_cast<size_t>(ranks) * sizeof(Mailbox);
  }

 protected:
  void begin(Transfer&) override {}

  void poll() override {
    std::fill(full_.begin(), full_.end(), false);
    for (int from = 0; from < size(); ++from) read_all(from);
  }

  bool progress_transfer(Transfer& transfer) override {
    return transfer.kind == Transfer::Kind::kSend ? write(transfer) : deliver(transfer);
  }

  bool try_cancel(Transfer& transfer) override {
    // the rest of a message that has begun must follow
    return transfer.kind == Transfer::Kind::kReceive || state_of(transfer) == 0;
  }

 private:
  Mailbox& mailbox(int from, int to) const {
    const size_t number = static_cast<size_t>(to) * static_cast<size_t>(size()) + static_cast<size_t>(from);
    return reinterpret_cast<Mailbox*>(region_.bytes.data())[number];
  }

  void read_all(int from) {
    Mailbox& box = mailbox(from, rank());
    Incoming& next = incoming_[static_cast<size_t>(from)];
    while (true) {
      if (next.of_front < sizeof(Front)) {
        const auto front = std::as_writable_bytes(std::span(&next.front, 1));
        next.of_front += box.take(front.subspan(next.of_front));
        if (next.of_front < sizeof(Front)) return;
        next.bytes.resize(next.front.length);
      }
      next.of_bytes += box.take(std::span(next.bytes).subspan(next.of_bytes));
      if (next.of_bytes < next.bytes.size()) return;
      arrived_[{from, static_cast<Tag>(next.front.tag)}].push_back(std::move(next.bytes));
      next = {};
    }
  }

  bool deliver(Transfer& transfer) {
    const auto found = arrived_.find({transfer.peer, transfer.tag});
    if (found == arrived_.end()) return false;
    const std::vector<std::byte> message = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) arrived_.erase(found);
    const auto bytes = bytes_of(transfer);
    if (message.size() > bytes.size()) {
      set_result(transfer, too_long(transfer, message.size()));
      return true;
    }
    std::copy(message.begin(), message.end(), bytes.begin());
    set_result(transfer, message.size());
    return true;
  }

  /// Writes the next part of a message, unless an earlier one to the same rank is not complete.
  bool write(Transfer& transfer) {
    if (full_[static_cast<size_t>(transfer.peer)]) return false;
    Mailbox& box = mailbox(rank(), transfer.peer);
    const auto bytes = bytes_of(transfer);
    const Front front{bytes.size(), transfer.tag};
    uint64_t& done = state_of(transfer);  // of the front, then of the bytes
    if (done < sizeof(Front)) done += box.write(std::as_bytes(std::span(&front, 1)).subspan(done));
    if (done >= sizeof(Front)) done += box.write(bytes.subspan(done - sizeof(Front)));
    const bool complete = done == sizeof(Front) + bytes.size();
    full_[static_cast<size_t>(transfer.peer)] = !complete;
    return complete;
  }

  const std::shared_ptr<NodeMemory> memory_;
  const Region region_;
  std::vector<Incoming> incoming_;  ///< by sender
  std::vector<bool> full_;          ///< by receiver: its mailbox had no room for all of a message
  std::map<std::pair<int, Tag>, std::deque<std::vector<std::byte>>>
      arrived_;  ///< by sender and tag; none is empty
};

}  // namespace

Result<std::unique_ptr<Endpoint>> make_mailbox_endpoint(std::shared_ptr<NodeMemory> memory) {
  auto region = memory->map(MailboxEndpoint::bytes(memory->size()));
  if (!region.ok()) return region.status();
  return std::unique_ptr<Endpoint>(
      std::make_unique<MailboxEndpoint>(std::move(memory), std::move(region).value()));
}

}  // namespace tarantella::transport
