#include "collective/across/exchange.h"

#include <cstring>

namespace tarantella::collective::across {
namespace {

uint64_t hash_of_header(const Header& header) {
  uint64_t hash = header.hash;
  for (const uint64_t field :
       {uint64_t{static_cast<uint32_t>(header.operation)}, uint64_t{static_cast<uint32_t>(header.dtype)},
        uint64_t{static_cast<uint32_t>(header.reduction)}, static_cast<uint64_t>(header.root), header.count})
    hash = mix(hash, field);
  return hash;
}

std::string describe_call(const Call& call) {
  const Header header = Header::of(call);
  Name name{};
  name.write(call, header);
  return describe(header, name);
}

}  // namespace

std::string describe_exchange(const Call& call) { return "the exchange of " + describe_call(call); }

Exchange::Exchange(Bridge& bridge) : bridge_(bridge), outgoing_(new std::byte[most_bytes()]) {
  const size_t nodes = bridge.nodes().count();
  for (size_t node = 0; node < nodes; ++node)
    incoming_.emplace_back(node == bridge.node() ? Buffer() : Buffer(new std::byte[most_bytes()]));
}

std::byte* Exchange::few() { return outgoing_.get() + sizeof(Head); }

const std::byte* Exchange::few_of(size_t node) const {
  return (node == bridge_.node() ? outgoing_ : incoming_[node]).get() + sizeof(Head);
}

Status Exchange::meet(const Call& call, size_t bytes) {
  const Header header = Header::of(call);
  const Head own{hash_of_header(header)};
  std::memcpy(outgoing_.get(), &own, sizeof(Head));
  std::vector<transport::Request> requests;
  for (size_t node = 0; node < nodes(); ++node) {
    if (node == bridge_.node()) continue;
    const std::span room(incoming_[node].get(), most_bytes());
    requests.push_back(bridge_.receive(node, Stream::kCall, room, incoming_[node]));
  }
  for (size_t node = 0; node < nodes(); ++node) {
    if (node == bridge_.node()) continue;
    const std::span all(outgoing_.get(), sizeof(Head) + bytes);
    requests.push_back(bridge_.send(node, Stream::kCall, all, outgoing_));
  }
  TNT_RETURN_IF_ERROR(bridge_.await(requests, [&call] { return describe_call(call); }));
  for (size_t node = 0; node < nodes(); ++node) {
    if (node != bridge_.node() && std::memcmp(incoming_[node].get(), &own.hash, sizeof(own.hash)) != 0)
      return explain(call, header);
  }
  return {};
}

Status Exchange::explain(const Call& call, const Header& header) {
  std::vector<std::shared_ptr<Details>> all;
  for (size_t node = 0; node < nodes(); ++node) all.push_back(std::make_shared<Details>());
  all[bridge_.node()]->header = header;
  all[bridge_.node()]->name.write(call, header);
  std::vector<transport::Request> requests;
  for (size_t node = 0; node < nodes(); ++node) {
    if (node == bridge_.node()) continue;
    const auto theirs = std::as_writable_bytes(std::span(all[node].get(), 1));
    const auto own = std::as_bytes(std::span(all[bridge_.node()].get(), 1));
    requests.push_back(bridge_.receive(node, Stream::kDetails, theirs, all[node]));
    requests.push_back(bridge_.send(node, Stream::kDetails, own, all[bridge_.node()]));
  }
  TNT_RETURN_IF_ERROR(bridge_.await(requests, [&call] { return describe_call(call); }));
  // every node sees the same and says the same
  const Nodes& layout = bridge_.nodes();
  size_t other = 1;
  while (other + 1 < nodes() && all[other]->header == all[0]->header) ++other;
  return bridge_.group().fail(difference(layout.leader(0), describe(all[0]->header, all[0]->name),
                                         layout.leader(other),
                                         describe(all[other]->header, all[other]->name)));
}

Exchange::Requests Exchange::start(Stream stream, const std::vector<Outgoing>& sends,
                                   const std::vector<Incoming>& receives,
                                   const std::shared_ptr<const void>& owner) {
  Requests requests;
  for (const Outgoing& each : sends) requests.push_back(bridge_.send(each.node, stream, each.bytes, owner));
  for (const Incoming& each : receives)
    requests.push_back(bridge_.receive(each.node, stream, each.bytes, owner));
  return requests;
}

Status Exchange::await(const Requests& requests, const Call& call) {
  TNT_RETURN_IF_ERROR(bridge_.await(requests, [&call] { return describe_exchange(call); }));
  for (const transport::Request& each : requests) {
    if (!each->is_whole()) return bridge_.group().fail_in(describe_exchange(call), each->why_not_whole());
  }
  return {};
}

Status Exchange::move(Stream stream, const std::vector<Outgoing>& sends,
                      const std::vector<Incoming>& receives, const std::shared_ptr<const void>& owner,
                      const Call& call) {
  return await(start(stream, sends, receives, owner), call);
}

std::shared_ptr<std::byte[]> Exchange::room(size_t bytes) {
  if (room_.use_count() != 1 || room_bytes_ < bytes) {
    room_.reset(new std::byte[bytes]);
    room_bytes_ = bytes;
  }
  return room_;
}

}  // namespace tarantella::collective::across
