#include "transport/wire.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace tarantella::transport {

Status Transfer::why_not_whole() const {
  if (!status_.ok() || is_whole()) return status_;
  return {Code::kMismatch, text("a message of ", length_, " bytes came from rank ", peer, " where ",
                                bytes_.size(), " were expected")};
}

Wire::~Wire() {
  for (auto* requests : {&started_, &under_way_}) {
    for (const Request& each : *requests) {
      each->status_ = given_up();
      close_transfer(*each);
    }
  }
}

Request Wire::send(int to, Tag tag, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  // a send only reads them
  const std::span<std::byte> all{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return start(Transfer::Kind::kSend, to, tag, all, std::move(owner));
}

Request Wire::receive(int from, Tag tag, std::span<std::byte> bytes, std::shared_ptr<const void> owner) {
  return start(Transfer::Kind::kReceive, from, tag, bytes, std::move(owner));
}

Request Wire::start(Transfer::Kind kind, int peer, Tag tag, std::span<std::byte> bytes,
                    std::shared_ptr<const void> owner) {
  const Request request(new Transfer(kind, peer, tag, bytes, std::move(owner)));
  open_count_.fetch_add(1, std::memory_order_relaxed);
  if (peer < 0 || peer >= size_ || tag >= kTags) {
    request->status_ = {Code::kInvalidArgument, text("no message can go to rank ", peer, " of ", size_,
                                                     " with tag ", tag, " of ", kTags)};
    close_transfer(*request);
    return request;
  }
  const std::lock_guard lock(mutex_);
  started_.push_back(request);
  return request;
}

void Wire::cancel(const Request& request) { request->cancelled_.store(true, std::memory_order_relaxed); }

size_t Wire::progress() {
  std::vector<Request> begun;
  {
    const std::lock_guard lock(mutex_);
    begun.swap(started_);
  }
  size_t ended = 0;
  for (Request& each : begun) {
    if (each->cancelled_.load(std::memory_order_relaxed)) {
      each->status_ = given_up();
      close_transfer(*each);
      ++ended;
      continue;
    }
    begin(*each);
    under_way_.push_back(std::move(each));
  }
  pump();
  ended += std::erase_if(under_way_, [this](const Request& each) { return look_at(*each); });
  return ended;
}

bool Wire::look_at(Transfer& transfer) {
  if (!advance(transfer)) {
    if (!transfer.cancelled_.load(std::memory_order_relaxed) || !give_up(transfer)) return false;
    transfer.status_ = given_up();
  }
  if (transfer.kind == Transfer::Kind::kReceive && transfer.status_.ok())
    ++received_[static_cast<size_t>(transfer.peer)];
  close_transfer(transfer);
  return true;
}

void Wire::close_transfer(Transfer& transfer) {
  transfer.owner_.reset();
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  transfer.ended_.store(true, std::memory_order_release);
}

void Wire::close(Deadline deadline) {
  const auto is_send = [](const Request& each) { return each->kind == Transfer::Kind::kSend; };
  do {
    (void)progress();
    if (std::none_of(under_way_.begin(), under_way_.end(), is_send)) break;
    std::this_thread::yield();
  } while (!deadline.passed());
  for (const Request& each : under_way_) cancel(each);
  (void)progress();
  finish(deadline);
}

Status Wire::given_up() { return {Code::kPeerLost, "the transfer was given up"}; }

Status Wire::too_long(const Transfer& transfer, size_t length) {
  return {Code::kMismatch, text("a message of ", length, " bytes came from rank ", transfer.peer,
                                " where at most ", transfer.bytes_.size(), " were expected")};
}

Status await(Wire& wire, const Request& request, Deadline deadline) {
  for (bool late = false; !request->ended(); late = deadline.passed()) {
    if (late) {
      wire.cancel(request);
      return {Code::kTimeout,
              text("no message ", request->kind == Transfer::Kind::kSend ? "reached" : "came from", " rank ",
                   request->peer, " in time")};
    }
    if (wire.progress() == 0) std::this_thread::yield();
  }
  return request->status();
}

}  // namespace tarantella::transport
