#include "collective/across/nodes_reduction.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/round.h"
#include "collective/across/operations.h"
#include "collective/kernels.h"

namespace tarantella::collective::across {
namespace {

constexpr Duration kLong = 1s;  // of a wait that other ranks are to see

bool are_whole(const std::vector<transport::Request>& requests, size_t own) {
  for (size_t node = 0; node < requests.size(); ++node) {
    if (node != own && (requests[node] == nullptr || !requests[node]->is_whole())) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<BucketReduction>> NodesReduction::create(Across& across,
                                                                std::unique_ptr<NodeReduction> node,
                                                                std::vector<Bucket> buckets,
                                                                const std::string& name, Numbers numbers) {
  Group& group = across.node().group();
  uint32_t first_tag = across.rank() == 0 ? across.tags()->take(buckets.size()).value_or(0) : 0;
  TNT_RETURN_IF_ERROR(broadcast(across, &first_tag, 1, DType::kUInt32, 0, name));
  if (first_tag == 0)
    return Status(Code::kInvalidArgument,
                  text(name, " has too many buckets (", buckets.size(),
                       ") for a job on several machines; raise TNT_FUSION_THRESHOLD"));
  auto region = group.map(round_up(buckets.size() * sizeof(transport::Word), 64), name);
  if (!region.ok()) return region.status();
  return std::unique_ptr<BucketReduction>(new NodesReduction(
      across, std::move(node), std::move(buckets), name, std::move(region).value(), first_tag, numbers));
}

NodesReduction::NodesReduction(Across& across, std::unique_ptr<NodeReduction> node,
                               std::vector<Bucket> buckets, std::string name, transport::Region region,
                               transport::Tag first_tag, Numbers numbers)
    : group_(across.node().group().shared_from_this()),
      nodes_(across.nodes()),
      own_(across.own_node()),
      bridge_(across.bridge()),
      tags_(across.rank() == 0 ? across.tags() : nullptr),
      node_(std::move(node)),
      buckets_(std::move(buckets)),
      name_(std::move(name)),
      region_(std::move(region)),
      first_tag_(first_tag),
      of_caller_(group_->is_caller()),
      single_(nodes_.ranks() == nodes_.count()),
      numbered_(numbers != Numbers::kNone),
      shows_wait_(numbers == Numbers::kLast && of_caller_),
      states_(buckets_.size()) {}

NodesReduction::~NodesReduction() {
  for (const State& state : states_) {
    if (state.traffic == nullptr) continue;
    bridge_->end_waiting();
    if (shows_wait_) bridge_->hide_wait();
  }
  if (tags_ != nullptr) tags_->give_back(first_tag_);
}

size_t NodesReduction::piece(const Across& across, size_t threshold) {
  const Nodes& nodes = across.nodes();
  return nodes.ranks() == nodes.count() ? std::max(threshold, kAtOnce) : threshold;
}

Range NodesReduction::part_of(size_t bucket, size_t node) const {
  const Bucket& whole = buckets_[bucket];
  if (is_small(bucket)) return whole.range();
  const Range part = slice_of(whole.bytes, node, nodes_.count());
  return {whole.offset + part.begin, whole.offset + part.end};
}

std::span<std::byte> NodesReduction::sums(Range range) const {
  // the node's memory, in which its leader completes the sums
  return {const_cast<std::byte*>(node_->result()) + range.begin, range.bytes()};
}

std::span<const std::byte> NodesReduction::own(size_t bucket, Range range) const {
  const std::byte* const lent = states_[bucket].lent.load(std::memory_order_relaxed);
  if (lent == nullptr) return sums(range);
  return {lent + (range.begin - buckets_[bucket].offset), range.bytes()};
}

std::span<std::byte> NodesReduction::incoming(size_t bucket, size_t node) const {
  const size_t each = part_of(bucket, own_).bytes();
  return {states_[bucket].traffic->incoming.get() + (node < own_ ? node : node - 1) * each, each};
}

transport::Word& NodesReduction::exchanged(size_t bucket) const {
  return reinterpret_cast<transport::Word*>(region_.bytes.data())[bucket];
}

void NodesReduction::put(size_t bucket, Range part, const std::byte* values, Kept kept) {
  const bool is_whole = part.bytes() != 0 && part == buckets_[bucket].range();
  const bool lends = is_whole && group_->size() == 1 && kept == Kept::kForGood && values != nullptr;
  if (is_whole) states_[bucket].whole = lends ? values : nullptr;
  if (!lends) node_->put(bucket, part, values, kept);
}

void NodesReduction::start(size_t bucket, uint32_t number) {
  State& state = states_[bucket];
  state.number = number;
  if (state.whole == nullptr) return node_->start(bucket, number);
  state.lent.store(state.whole, std::memory_order_release);
}

BucketReduction::Advanced NodesReduction::advance(size_t bucket) {
  State& state = states_[bucket];
  const uint32_t step = state.step.load(std::memory_order_relaxed);
  if (!state.exchanging.load(std::memory_order_relaxed)) {
    const bool lent = state.lent.load(std::memory_order_acquire) != nullptr;
    const Advanced advanced = lent ? Advanced::kSummed : node_->advance(bucket);
    if (lent || advanced == Advanced::kDone) state.exchanging.store(true, std::memory_order_relaxed);
    if (advanced != Advanced::kDone) return advanced;
  }
  if (bridge_ != nullptr) {
    const bool begins = state.traffic == nullptr;
    if (begins) {
      if (!has_room()) {
        refused_ = true;
        return Advanced::kNothing;
      }
      begin_exchange(bucket);
    }
    if (!exchange(bucket)) return begins ? Advanced::kMoving : Advanced::kNothing;
    group_->signal(exchanged(bucket), step);
    // one that was refused may begin now, and nothing else may call for a look at it
    const bool here = std::exchange(refused_, false);
    group_->ring_if([this, here](int rank) { return here || rank != group_->rank(); });
  } else if (exchanged(bucket).load(std::memory_order_acquire) != step) {
    return Advanced::kNothing;
  }
  state.lent.store(nullptr, std::memory_order_relaxed);
  state.exchanging.store(false, std::memory_order_relaxed);
  state.step.fetch_add(1, std::memory_order_relaxed);
  return Advanced::kDone;
}

std::optional<BucketReduction::Awaited> NodesReduction::awaited(size_t bucket) const {
  const State& state = states_[bucket];
  if (!state.exchanging.load(std::memory_order_relaxed)) return node_->awaited(bucket);
  if (bridge_ != nullptr) return std::nullopt;  // it looks after the other nodes
  constexpr uint32_t kOfNodes = 0x80000000;     // no wait for this node's sums
  return Awaited{0, kOfNodes | state.step.load(std::memory_order_relaxed)};
}

bool NodesReduction::has_room() const {
  const bool few = single_ ? exchanges_ < 2 || under_way_ < kAtOnce / 2 : under_way_ < kAtOnce;
  return few || bridge_->now() - changed_at_ > kPatience;
}

void NodesReduction::begin_exchange(size_t bucket) {
  under_way_ += buckets_[bucket].bytes;
  ++exchanges_;
  changed_at_ = bridge_->now();
  auto traffic = std::make_unique<Traffic>();
  const size_t nodes = nodes_.count();
  for (auto* requests :
       {&traffic->parts_out, &traffic->parts_in, &traffic->results_out, &traffic->results_in})
    requests->resize(nodes);
  if (numbered_) {
    traffic->numbers_out.resize(nodes);
    traffic->numbers_in.resize(nodes);
    traffic->numbers = std::shared_ptr<uint32_t[]>(new uint32_t[nodes]);
    const bool lent = states_[bucket].lent.load(std::memory_order_relaxed) != nullptr;
    traffic->numbers[own_] = lent ? states_[bucket].number : node_->number(bucket);
  }
  traffic->incoming = room(room_bytes(bucket));
  traffic->since = bridge_->now();
  traffic->next_warning = traffic->since + group_->options().warn_every;
  states_[bucket].traffic = std::move(traffic);
  Traffic& started = *states_[bucket].traffic;
  const transport::Tag tag = first_tag_ + static_cast<transport::Tag>(bucket);
  for (size_t node = 0; node < nodes; ++node) {
    if (node == own_) continue;
    if (numbered_) {
      const auto of = [&](size_t k) { return std::as_writable_bytes(std::span(&started.numbers[k], 1)); };
      started.numbers_out[node] = bridge_->send(node, tag, of(own_), started.numbers);
      started.numbers_in[node] = bridge_->receive(node, tag, of(node), started.numbers);
    }
    started.parts_out[node] = bridge_->send(node, tag, own(bucket, part_of(bucket, node)), node_->memory());
    started.parts_in[node] = bridge_->receive(node, tag, incoming(bucket, node), started.incoming);
  }
  bridge_->begin_waiting();
  if (shows_wait_) bridge_->show_wait(started.numbers_in, name_);
}

bool NodesReduction::compare_numbers(const Traffic& traffic) {
  const uint32_t own = numbered_ ? traffic.numbers[own_] : 0;
  if (own == 0) return true;
  for (size_t node = 0; node < nodes_.count(); ++node) {
    const uint32_t other = traffic.numbers[node];
    if (other == own || other == 0) continue;
    (void)group_->fail(different_steps(name_, {nodes_.leader(own_), own}, {nodes_.leader(node), other}));
    return false;
  }
  return true;
}

bool NodesReduction::exchange(size_t bucket) {
  Traffic& traffic = *states_[bucket].traffic;
  const transport::Tag tag = first_tag_ + static_cast<transport::Tag>(bucket);
  const bool small = is_small(bucket);
  const bool lent = states_[bucket].lent.load(std::memory_order_relaxed) != nullptr;
  // sums in the node's memory replace what is being sent of a small bucket
  if (!traffic.reduced && are_whole(traffic.numbers_in, own_) && are_whole(traffic.parts_in, own_) &&
      (!small || lent || are_whole(traffic.parts_out, own_))) {
    if (!compare_numbers(traffic)) return false;
    reduce(bucket);
    traffic.reduced = true;
    for (size_t node = 0; node < nodes_.count() && !small; ++node) {
      if (node == own_) continue;
      traffic.results_out[node] = bridge_->send(node, tag, sums(part_of(bucket, own_)), node_->memory());
    }
  }
  for (size_t node = 0; node < nodes_.count() && !small; ++node) {
    if (node == own_ || traffic.results_in[node] != nullptr) continue;
    if (!lent && !traffic.parts_out[node]->ended()) continue;  // they come where these are
    // to be ready for a long one before this node sends its own would make the directions take turns
    if (!traffic.reduced && part_of(bucket, node).bytes() > transport::kUnasked) continue;
    traffic.results_in[node] = bridge_->receive(node, tag, sums(part_of(bucket, node)), node_->memory());
  }
  look_after(bucket);
  const bool complete =
      traffic.reduced && are_whole(traffic.numbers_out, own_) && are_whole(traffic.parts_out, own_) &&
      (small || (are_whole(traffic.results_in, own_) && are_whole(traffic.results_out, own_)));
  if (!complete || !group_->failure().ok()) return false;
  if (shows_wait_) bridge_->hide_wait();
  rooms_.emplace_back(room_bytes(bucket), std::move(traffic.incoming));
  states_[bucket].traffic = nullptr;
  far().store(false);
  under_way_ -= buckets_[bucket].bytes;
  --exchanges_;
  changed_at_ = bridge_->now();
  bridge_->end_waiting();
  return true;
}

void NodesReduction::reduce(size_t bucket) {
  const Range mine = part_of(bucket, own_);
  std::vector<const std::byte*> parts;
  for (size_t node = 0; node < nodes_.count(); ++node)
    parts.push_back(node == own_ ? own(bucket, mine).data() : incoming(bucket, node).data());
  const DType dtype = buckets_[bucket].dtype;
  collective::reduce(dtype, Reduction::kSum, parts.data(), parts.size(), sums(mine).data(),
                     mine.bytes() / size_of(dtype));
}

void NodesReduction::look_after(size_t bucket) {
  Traffic& traffic = *states_[bucket].traffic;
  const Duration now = bridge_->now();
  for (size_t node = 0; node < nodes_.count(); ++node) {
    if (node == own_) continue;
    bool open = false;
    for (const auto* requests : {&traffic.numbers_out, &traffic.numbers_in, &traffic.parts_out,
                                 &traffic.parts_in, &traffic.results_out, &traffic.results_in}) {
      if (requests->empty() || (*requests)[node] == nullptr) continue;
      const transport::Request& request = (*requests)[node];
      if (!request->ended()) {
        open = true;
      } else if (!request->is_whole()) {
        if (!bridge_->is_leaving())
          (void)group_->fail_in("the exchange of " + name_, request->why_not_whole());
        return;
      }
    }
    if (!open) continue;
    const auto place = [&] {
      return text("rank ", group_->job_rank(group_->rank()), " waits for ", name_, " of ",
                  nodes_.describe(node));
    };
    if (bridge_->has_left(node)) {
      traffic.left_since = std::min(traffic.left_since, now);
      if (now - traffic.left_since >= group_->options().grace)
        (void)group_->fail({Code::kPeerLost, place() +
                                                 ", which ended; make the same calls with the same number "
                                                 "of batches on every rank"});
    }
    const std::string call = of_caller_ ? bridge_->stuck_call_of(node, traffic.since) : "";
    if (!call.empty()) {
      (void)group_->fail(
          {Code::kMismatch, text(place(), ", which waits in ", call,
                                 "; make the same calls in the same order on every rank, under no "
                                 "condition on its own rows or loss")});
    }
    const Duration waited = now - traffic.since;
    if (waited > kLong) far().store(true);
    if (group_->stalls(waited, Group::kStallsFar))
      (void)group_->fail_stalled(text("rank ", group_->job_rank(group_->rank()), " waits for ", name_, ": "),
                                 nodes_.describe(node), waited);
    if (now >= traffic.next_warning) {
      traffic.next_warning = now + group_->options().warn_every;
      log_warning(
          text(place(), ": nothing came for ", static_cast<int>(in_seconds(now - traffic.since)), " s"));
    }
  }
}

std::atomic<bool>& NodesReduction::far() const {
  return group_->members().waits(group_->job_rank(group_->rank())).far;
}

std::shared_ptr<std::byte[]> NodesReduction::room(size_t bytes) {
  const auto found =
      std::find_if(rooms_.begin(), rooms_.end(), [bytes](const auto& each) { return each.first == bytes; });
  if (found == rooms_.end()) return std::shared_ptr<std::byte[]>(new std::byte[bytes]);
  auto room = std::move(found->second);
  rooms_.erase(found);
  return room;
}

}  // namespace tarantella::collective::across
