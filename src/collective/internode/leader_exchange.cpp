#include "collective/internode/leader_exchange.h"

#include <algorithm>
#include <cstring>

namespace tarantella::collective::internode {
namespace {

uint64_t hash_of_header(const Header& header) {
  uint64_t hash = header.hash;
  for (const uint64_t field :
       {uint64_t{static_cast<uint32_t>(header.operation)}, uint64_t{static_cast<uint32_t>(header.dtype)},
        uint64_t{static_cast<uint32_t>(header.reduction)}, static_cast<uint64_t>(header.root), header.count})
    hash = mix(hash, field);
  return hash;
}

std::string describe_call(const CallSignature& call) {
  const Header header = Header::of(call);
  Name name{};
  name.write(call, header);
  return describe(header, name);
}

}  // namespace

std::string describe_exchange(const CallSignature& call) { return "the exchange of " + describe_call(call); }

LeaderExchange::LeaderExchange(LeaderLink& link)
    : link_(link),
      own_segment_(new std::byte[segment_bytes(inline_limit(link.nodes()))]),
      segments_(link.nodes().count()) {
  const size_t segment = segment_bytes(inline_limit(link.nodes()));
  for (size_t distance = 1; distance < nodes(); distance *= 2) {
    const size_t count = std::min(distance, nodes() - distance);
    const size_t bytes = count * segment;
    steps_.push_back({distance, count, bytes, distance == 1 ? own_segment_ : Buffer(new std::byte[bytes]),
                      Buffer(new std::byte[bytes])});
  }
  segments_[node_index()] = own_segment_.get();
}

std::byte* LeaderExchange::inline_payload() { return own_segment_.get() + sizeof(Head); }

size_t LeaderExchange::pack(const BruckStep& step) {
  size_t end = 0;
  for (size_t k = 0; k < step.segments; ++k) {
    const std::byte* const segment = segments_[before(k)];
    const size_t bytes = segment_bytes(head_of(segment).bytes);
    if (step.outgoing.get() + end != segment) std::memcpy(step.outgoing.get() + end, segment, bytes);
    end += bytes;
  }
  return end;
}

bool LeaderExchange::unpack(const BruckStep& step, size_t bytes) {
  size_t end = 0;
  for (size_t k = 0; k < step.segments; ++k) {
    if (bytes - end < sizeof(Head)) return false;
    const std::byte* const segment = step.incoming.get() + end;
    if (head_of(segment).bytes > bytes - end - sizeof(Head)) return false;
    segments_[before(step.distance + k)] = segment;
    end += segment_bytes(head_of(segment).bytes);
    if (end > bytes) return false;
  }
  return end == bytes;
}

Status LeaderExchange::exchange_calls(const CallSignature& call, size_t bytes) {
  const Header header = Header::of(call);
  const Head own{.hash = hash_of_header(header), .bytes = bytes};
  std::memcpy(own_segment_.get(), &own, sizeof(Head));
  const auto what = [&call] { return describe_call(call); };
  std::vector<transport::TransferPtr> receives;
  for (const BruckStep& step : steps_)
    receives.push_back(link_.receive(before(step.distance), MessageTag::kCall,
                                     {step.incoming.get(), step.most_bytes}, step.incoming));
  for (size_t k = 0; k < steps_.size(); ++k) {
    const BruckStep& step = steps_[k];
    const size_t next = (node_index() + step.distance) % nodes();
    const transport::TransferPtr transfers[] = {
        link_.send(next, MessageTag::kCall, {step.outgoing.get(), pack(step)}, step.outgoing), receives[k]};
    const bool peer_may_be_blocked = k != 0;  // it relays what it gets in earlier steps
    TNT_RETURN_IF_ERROR(link_.await(transfers, what, peer_may_be_blocked));
    if (!unpack(step, receives[k]->length()))
      return link_.group().fail_in(describe_exchange(call),
                                   {Code::kSystem, "a message of another version of Tarantella"});
  }
  for (const std::byte* const segment : segments_) {
    if (head_of(segment).hash != own.hash) return explain(call, header);
  }
  return {};
}

Status LeaderExchange::explain(const CallSignature& call, const Header& header) {
  std::vector<std::shared_ptr<Details>> all;
  for (size_t node = 0; node < nodes(); ++node) all.push_back(std::make_shared<Details>());
  all[link_.node_index()]->header = header;
  all[link_.node_index()]->name.write(call, header);
  std::vector<transport::TransferPtr> transfers;
  for (size_t node = 0; node < nodes(); ++node) {
    if (node == link_.node_index()) continue;
    const auto theirs = std::as_writable_bytes(std::span(all[node].get(), 1));
    const auto own = std::as_bytes(std::span(all[link_.node_index()].get(), 1));
    transfers.push_back(link_.receive(node, MessageTag::kDetails, theirs, all[node]));
    transfers.push_back(link_.send(node, MessageTag::kDetails, own, all[link_.node_index()]));
  }
  TNT_RETURN_IF_ERROR(link_.await(transfers, [&call] { return describe_call(call); }));
  // every node sees the same and says the same
  const NodeMap& layout = link_.nodes();
  size_t other = 1;
  while (other + 1 < nodes() && all[other]->header == all[0]->header) ++other;
  return link_.group().fail(difference(layout.leader(0), describe(all[0]->header, all[0]->name),
                                       layout.leader(other), describe(all[other]->header, all[other]->name)));
}

LeaderExchange::Transfers LeaderExchange::start(MessageTag tag, const std::vector<Outgoing>& sends,
                                                const std::vector<Incoming>& receives,
                                                const std::shared_ptr<const void>& owner) {
  Transfers transfers;
  for (const Outgoing& each : sends) transfers.push_back(link_.send(each.node, tag, each.bytes, owner));
  for (const Incoming& each : receives) transfers.push_back(link_.receive(each.node, tag, each.bytes, owner));
  return transfers;
}

Status LeaderExchange::await(const Transfers& transfers, const CallSignature& call) {
  TNT_RETURN_IF_ERROR(link_.await(transfers, [&call] { return describe_exchange(call); }));
  for (const transport::TransferPtr& each : transfers) {
    if (!each->completed_in_full()) return link_.group().fail_in(describe_exchange(call), each->error());
  }
  return {};
}

Status LeaderExchange::send_receive(MessageTag tag, const std::vector<Outgoing>& sends,
                                    const std::vector<Incoming>& receives,
                                    const std::shared_ptr<const void>& owner, const CallSignature& call) {
  return await(start(tag, sends, receives, owner), call);
}

std::shared_ptr<std::byte[]> LeaderExchange::receive_buffer(size_t bytes) {
  if (receive_buffer_.use_count() != 1 || receive_buffer_bytes_ < bytes) {
    receive_buffer_.reset(new std::byte[bytes]);
    receive_buffer_bytes_ = bytes;
  }
  return receive_buffer_;
}

}  // namespace tarantella::collective::internode
