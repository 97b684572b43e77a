#include "transport/endpoint.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace tarantella::transport {

Status Transfer::error() const {
  if (!status_.ok() || completed_in_full()) return status_;
  return {Code::kMismatch, text("a message of ", length_, " bytes came from rank ", peer, " where ",
                                bytes_.size(), " were expected")};
}

Endpoint::~Endpoint() {
  for (auto* transfers : {&queued_, &active_}) {
    for (const TransferPtr& each : *transfers) {
      each->status_ = cancelled();
      close_transfer(*each);
    }
  }
}

TransferPtr Endpoint::send(int to, Tag tag, std::span<const std::byte> bytes,
                           std::shared_ptr<const void> owner) {
  // a send only reads them
  const std::span<std::byte> all{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return start(Transfer::Kind::kSend, to, tag, all, std::move(owner));
}

TransferPtr Endpoint::receive(int from, Tag tag, std::span<std::byte> bytes,
                              std::shared_ptr<const void> owner) {
  return start(Transfer::Kind::kReceive, from, tag, bytes, std::move(owner));
}

TransferPtr Endpoint::start(Transfer::Kind kind, int peer, Tag tag, std::span<std::byte> bytes,
                            std::shared_ptr<const void> owner) {
  const TransferPtr transfer(new Transfer(kind, peer, tag, bytes, std::move(owner)));
  open_count_.fetch_add(1, std::memory_order_relaxed);
  if (peer < 0 || peer >= size_ || tag >= kTags) {
    transfer->status_ = {Code::kInvalidArgument, text("no message can go to rank ", peer, " of ", size_,
                                                      " with tag ", tag, " of ", kTags)};
    close_transfer(*transfer);
    return transfer;
  }
  const std::lock_guard lock(mutex_);
  queued_.push_back(transfer);
  return transfer;
}

void Endpoint::cancel(const TransferPtr& transfer) {
  transfer->cancelled_.store(true, std::memory_order_release);
}

size_t Endpoint::progress() {
  std::vector<TransferPtr> begun;
  {
    const std::lock_guard lock(mutex_);
    begun.swap(queued_);
  }
  size_t ended = 0;
  for (TransferPtr& each : begun) {
    if (each->cancelled_.load(std::memory_order_acquire)) {
      each->status_ = cancelled();
      close_transfer(*each);
      ++ended;
      continue;
    }
    begin(*each);
    active_.push_back(std::move(each));
  }
  poll();
  ended += std::erase_if(active_, [this](const TransferPtr& each) { return close_if_ended(*each); });
  return ended;
}

bool Endpoint::close_if_ended(Transfer& transfer) {
  if (!progress_transfer(transfer)) {
    if (!transfer.cancelled_.load(std::memory_order_acquire) || !try_cancel(transfer)) return false;
    transfer.status_ = cancelled();
  }
  if (transfer.kind == Transfer::Kind::kReceive && transfer.status_.ok())
    ++received_[static_cast<size_t>(transfer.peer)];
  close_transfer(transfer);
  return true;
}

void Endpoint::close_transfer(Transfer& transfer) {
  transfer.owner_.reset();
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  transfer.ended_.store(true, std::memory_order_release);
}

void Endpoint::close(Deadline deadline) {
  const auto is_send = [](const TransferPtr& each) { return each->kind == Transfer::Kind::kSend; };
  do {
    (void)progress();
    if (std::none_of(active_.begin(), active_.end(), is_send)) break;
    std::this_thread::yield();
  } while (!deadline.passed());
  for (const TransferPtr& each : active_) cancel(each);
  (void)progress();
  finish(deadline);
}

Status Endpoint::cancelled() { return {Code::kPeerLost, "the transfer was cancelled"}; }

Status Endpoint::too_long(const Transfer& transfer, size_t length) {
  return {Code::kMismatch, text("a message of ", length, " bytes came from rank ", transfer.peer,
                                " where at most ", transfer.bytes_.size(), " were expected")};
}

Status await(Endpoint& endpoint, const TransferPtr& transfer, Deadline deadline) {
  for (bool late = false; !transfer->ended(); late = deadline.passed()) {
    if (late) {
      endpoint.cancel(transfer);
      return {Code::kTimeout,
              text("no message ", transfer->kind == Transfer::Kind::kSend ? "reached" : "came from", " rank ",
                   transfer->peer, " in time")};
    }
    if (endpoint.progress() == 0) std::this_thread::yield();
  }
  return transfer->status();
}

}  // namespace tarantella::transport
