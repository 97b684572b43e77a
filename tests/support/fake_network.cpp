#include "support/fake_network.h"

#include <algorithm>

#include "base/hash.h"

namespace tarantella::transport {

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(FakeNetwork& network, int rank, int size) : Endpoint(rank, size), network_(network) {}
  FakeEndpoint(const FakeEndpoint&) = delete;
  FakeEndpoint& operator=(const FakeEndpoint&) = delete;
  ~FakeEndpoint() override {
    const std::lock_guard lock(network_.mutex_);
    for (int to = 0; to < size(); ++to) {
      for (auto& [tag, channel] : network_.link(rank(), to).channels)
        lose_from(channel, [](const FakeNetwork::Message& each) { return each.waiting != nullptr; });
    }
  }

 protected:
  void begin(Transfer& transfer) override {
    const std::lock_guard lock(network_.mutex_);
    const auto own = static_cast<size_t>(rank());
    const auto bytes = bytes_of(transfer);
    int& ahead = network_.ahead_[own][{transfer.peer, transfer.tag}];
    if (transfer.kind == Transfer::Kind::kReceive) {
      if (--ahead < 0 && bytes.size() > kEagerLimit + kHead) ++network_.received_first_[own];
      return;
    }
    ++ahead;
    network_.sent_[own].push_back(bytes);
    FakeNetwork::Link& link = network_.link(rank(), transfer.peer);
    const uint64_t now = network_.ticks_[static_cast<size_t>(transfer.peer)];
    FakeNetwork::Message message;
    // not in the call of progress() that may run now: it has looked at some receives of the tag already
    message.due = now + 1 + link.random() % (network_.latest_ + 1);
    const bool waits = link.random() % 2 == 0;
    if (waits) {
      message.waiting = &transfer;
    } else {
      message.bytes.assign(bytes.begin(), bytes.end());
      state_of(transfer) = kTaken;
    }
    if (!link.cut) link.channels[transfer.tag].push_back(std::move(message));
  }

  void poll() override {
    const auto own = static_cast<size_t>(rank());
    std::unique_lock lock(network_.mutex_);
    ++network_.held_[own];
    while (network_.stopped_[own]) network_.resumed_.wait_for(lock, 1s);
    --network_.held_[own];
    ++network_.ticks_[own];
  }

  bool progress_transfer(Transfer& transfer) override {
    const std::lock_guard lock(network_.mutex_);
    if (transfer.kind == Transfer::Kind::kSend) return state_of(transfer) == kTaken;
    FakeNetwork::Link& link = network_.link(transfer.peer, rank());
    auto& channel = link.channels[transfer.tag];
    if (link.cut || channel.empty() || channel.front().due > network_.ticks_[static_cast<size_t>(rank())])
      return false;
    const FakeNetwork::Message message = std::move(channel.front());
    channel.pop_front();
    const std::span<const std::byte> bytes =
        message.waiting != nullptr ? bytes_of(*message.waiting) : std::span<const std::byte>(message.bytes);
    if (bytes.size() > bytes_of(transfer).size()) {
      set_result(transfer, too_long(transfer, bytes.size()));
    } else {
      std::copy(bytes.begin(), bytes.end(), bytes_of(transfer).begin());
      set_result(transfer, bytes.size());
    }
    if (message.waiting != nullptr) state_of(*message.waiting) = kTaken;
    return true;
  }

  bool try_cancel(Transfer& transfer) override {
    if (transfer.kind == Transfer::Kind::kReceive) return true;
    const std::lock_guard lock(network_.mutex_);
    lose_from(network_.link(rank(), transfer.peer).channels[transfer.tag],
              [&](const FakeNetwork::Message& each) { return each.waiting == &transfer; });
    return true;
  }

 private:
  static constexpr uint64_t kTaken = 1;
  static constexpr size_t kHead = 64;  // of a message that leaves unasked

  /// Loses the first message that is `lost`, and those behind it, which cannot arrive before it.
  template <typename Lost>
  static void lose_from(std::deque<FakeNetwork::Message>& channel, const Lost& lost) {
    channel.erase(std::find_if(channel.begin(), channel.end(), lost), channel.end());
  }

  FakeNetwork& network_;
};

FakeNetwork::FakeNetwork(int size, uint64_t seed, uint32_t latest)
    : latest_(latest),
      links_(static_cast<size_t>(size) * static_cast<size_t>(size)),
      ticks_(static_cast<size_t>(size)),
      sent_(static_cast<size_t>(size)),
      ahead_(static_cast<size_t>(size)),
      received_first_(static_cast<size_t>(size)),
      stopped_(static_cast<size_t>(size)),
      held_(static_cast<size_t>(size)) {
  for (size_t k = 0; k < links_.size(); ++k) links_[k].seed = mix(mix(hash_of("link"), seed), k);
}

std::unique_ptr<Endpoint> FakeNetwork::endpoint(int rank) {
  return std::make_unique<FakeEndpoint>(*this, rank, static_cast<int>(ticks_.size()));
}

uint64_t FakeNetwork::Link::random() {
  return mix(mix(hash_of("message"), seed), ++drawn) >> 20;  // the last bits of such a product are not random
}

void FakeNetwork::cut(int a, int b) {
  const std::lock_guard lock(mutex_);
  link(a, b).cut = link(b, a).cut = true;
}

void FakeNetwork::cut(int rank) {
  for (int other = 0; other < static_cast<int>(ticks_.size()); ++other) cut(rank, other);
}

void FakeNetwork::stop(int rank) {
  const std::lock_guard lock(mutex_);
  stopped_[static_cast<size_t>(rank)] = true;
}

void FakeNetwork::resume(int rank) {
  const std::lock_guard lock(mutex_);
  stopped_[static_cast<size_t>(rank)] = false;
  resumed_.notify_all();
}

bool FakeNetwork::holds(int rank) const {
  const std::lock_guard lock(mutex_);
  return held_[static_cast<size_t>(rank)] != 0;
}

FakeNetwork::Sent FakeNetwork::sent(int rank) const {
  const std::lock_guard lock(mutex_);
  Sent all;
  for (const auto message : sent_[static_cast<size_t>(rank)]) {
    ++all.messages;
    all.bytes += message.size();
  }
  return all;
}

size_t FakeNetwork::sent_from(int rank, std::span<const std::byte> memory) const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto message : sent_[static_cast<size_t>(rank)]) {
    if (message.data() >= memory.data() && message.data() + message.size() <= memory.data() + memory.size())
      bytes += message.size();
  }
  return bytes;
}

size_t FakeNetwork::received_first(int rank) const {
  const std::lock_guard lock(mutex_);
  return received_first_[static_cast<size_t>(rank)];
}

}  // namespace tarantella::transport
