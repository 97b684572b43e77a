#include "collective/internode/internode_reduction.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/log.h"
#include "base/round.h"
#include "collective/kernels.h"

namespace tarantella::collective::internode {
namespace {

constexpr Duration kLong = 1s;  // of a wait that other ranks are to see

bool all_complete(const std::vector<transport::TransferPtr>& by_node, size_t own_node) {
  for (size_t node = 0; node < by_node.size(); ++node) {
    if (node != own_node && (by_node[node] == nullptr || !by_node[node]->completed_in_full())) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<BucketReduction>> InternodeReduction::create(
    InternodeResources& internode, std::unique_ptr<SharedMemoryReduction> intranode,
    std::vector<Bucket> buckets, const std::string& name, transport::Tag first_tag, StepCheck step_check) {
  auto region = internode.staging().group().map(round_up(buckets.size() * sizeof(transport::Word), 64), name);
  if (!region.ok()) return region.status();
  return std::unique_ptr<BucketReduction>(
      new InternodeReduction(internode, std::move(intranode), std::move(buckets), name,
                             std::move(region).value(), first_tag, step_check));
}

InternodeReduction::InternodeReduction(InternodeResources& internode,
                                       std::unique_ptr<SharedMemoryReduction> intranode,
                                       std::vector<Bucket> buckets, std::string name,
                                       transport::Region region, transport::Tag first_tag,
                                       StepCheck step_check)
    : group_(internode.staging().group().shared_from_this()),
      nodes_(internode.nodes()),
      own_node_(internode.own_node()),
      link_(internode.link()),
      tags_(link_ == nullptr ? nullptr : internode.tags()),
      intranode_(std::move(intranode)),
      buckets_(std::move(buckets)),
      name_(std::move(name)),
      region_(std::move(region)),
      first_tag_(first_tag),
      made_by_creator_thread_(group_->is_creator_thread()),
      one_rank_per_node_(nodes_.ranks() == nodes_.count()),
      checks_training_steps_(step_check != StepCheck::kOnNode),
      publishes_wait_edge_(step_check == StepCheck::kAllNodesExclusive && made_by_creator_thread_),
      states_(buckets_.size()) {
  if (tags_ != nullptr) tags_->reserve(first_tag_, buckets_.size());
}

InternodeReduction::~InternodeReduction() {
  for (size_t bucket = 0; bucket < states_.size(); ++bucket) abort(bucket);
  if (tags_ != nullptr) tags_->release(first_tag_);
}

size_t InternodeReduction::split_bytes(const InternodeResources& internode, size_t threshold) {
  const NodeMap& nodes = internode.nodes();
  return nodes.ranks() == nodes.count() ? std::max(threshold, kMaxBytesInFlight) : threshold;
}

Range InternodeReduction::shard_of(size_t bucket, size_t node) const {
  const Bucket& all = buckets_[bucket];
  if (is_one_shot(bucket)) return all.range();
  const Range shard = slice_of(all.bytes, node, nodes_.count());
  return {all.offset + shard.begin, all.offset + shard.end};
}

std::span<std::byte> InternodeReduction::sums(Range range) const {
  return {intranode_->sums() + range.begin, range.bytes()};
}

std::span<const std::byte> InternodeReduction::node_sums(size_t bucket, Range range) const {
  const std::byte* const input = states_[bucket].active_send_buffer.load(std::memory_order_relaxed);
  if (input == nullptr) return sums(range);
  return {input + (range.begin - buckets_[bucket].offset), range.bytes()};
}

std::span<std::byte> InternodeReduction::incoming(size_t bucket, size_t node) const {
  const size_t each = shard_of(bucket, own_node_).bytes();
  return {states_[bucket].transfers->incoming.get() + (node < own_node_ ? node : node - 1) * each, each};
}

transport::Word& InternodeReduction::exchanged(size_t bucket) const {
  return reinterpret_cast<transport::Word*>(region_.bytes.data())[bucket];
}

void InternodeReduction::put(size_t bucket, Range range, const std::byte* values,
                             const std::shared_ptr<const void>& owner) {
  const bool fills_bucket = range.bytes() != 0 && range == buckets_[bucket].range();
  const bool is_zero_copy = fills_bucket && group_->size() == 1 && owner != nullptr && values != nullptr;
  State& state = states_[bucket];
  if (fills_bucket) state.zero_copy_input = is_zero_copy ? values : nullptr;
  if (is_zero_copy) state.owner = owner;
  if (!is_zero_copy) intranode_->put(bucket, range, values, owner);
}

void InternodeReduction::start(size_t bucket, uint32_t training_step) {
  State& state = states_[bucket];
  state.training_step = training_step;
  if (state.zero_copy_input == nullptr) return intranode_->start(bucket, training_step);
  state.active_send_buffer.store(state.zero_copy_input, std::memory_order_release);
}

BucketReduction::Advanced InternodeReduction::advance(size_t bucket) {
  State& state = states_[bucket];
  const uint32_t generation = state.generation.load(std::memory_order_relaxed);
  if (!state.exchanging.load(std::memory_order_relaxed)) {
    const bool is_zero_copy = state.active_send_buffer.load(std::memory_order_acquire) != nullptr;
    const Advanced advanced = is_zero_copy ? Advanced::kCallAgain : intranode_->advance(bucket);
    if (is_zero_copy || advanced == Advanced::kDone) state.exchanging.store(true, std::memory_order_relaxed);
    if (advanced != Advanced::kDone) return advanced;
  }
  if (link_ != nullptr) {
    const bool begins = state.transfers == nullptr;
    if (begins) {
      if (!may_begin_exchange()) {
        deferred_ = true;
        return Advanced::kNothing;
      }
      begin_exchange(bucket);
    }
    if (!advance_exchange(bucket)) return begins ? Advanced::kExchangeBegun : Advanced::kNothing;
    group_->publish(exchanged(bucket), generation);
    // one that was refused may begin now, and nothing else may wake this rank's thread for it
    const bool wake_self = std::exchange(deferred_, false);
    group_->wake_progress_threads_if(
        [this, wake_self](int rank) { return wake_self || rank != group_->rank(); });
  } else if (exchanged(bucket).load(std::memory_order_acquire) != generation) {
    return Advanced::kNothing;
  }
  state.active_send_buffer.store(nullptr, std::memory_order_relaxed);
  state.owner.reset();
  state.exchanging.store(false, std::memory_order_relaxed);
  state.generation.fetch_add(1, std::memory_order_relaxed);
  return Advanced::kDone;
}

void InternodeReduction::abort(size_t bucket) {
  State& state = states_[bucket];
  if (state.transfers != nullptr) {
    const auto all = state.transfers->all();
    for (const auto* by_node : std::views::reverse(all)) {
      for (const transport::TransferPtr& transfer : *by_node) {
        if (transfer != nullptr && !transfer->ended()) link_->cancel(transfer);
      }
    }
    tags_->retire(tag_of(bucket));
    end_transfers(bucket);
  }
  state.active_send_buffer.store(nullptr, std::memory_order_relaxed);
  state.owner.reset();
}

void InternodeReduction::end_transfers(size_t bucket) {
  if (publishes_wait_edge_) link_->clear_wait_edge();
  states_[bucket].transfers = nullptr;
  link_->end_operation();
}

std::optional<BucketReduction::Awaited> InternodeReduction::awaited(size_t bucket) const {
  const State& state = states_[bucket];
  if (!state.exchanging.load(std::memory_order_relaxed)) return intranode_->awaited(bucket);
  if (link_ != nullptr) return std::nullopt;  // check_peers() does that for other nodes
  constexpr uint32_t kOfNodes = 0x80000000;   // no wait for this node's sums
  return Awaited{0, kOfNodes | state.generation.load(std::memory_order_relaxed)};
}

bool InternodeReduction::may_begin_exchange() const {
  const bool below = one_rank_per_node_ ? exchanges_ < 2 || bytes_in_flight_ < kMaxBytesInFlight / 2
                                        : bytes_in_flight_ < kMaxBytesInFlight;
  return below || link_->now() - changed_at_ > WaitPolicy::kQuiet;
}

void InternodeReduction::begin_exchange(size_t bucket) {
  bytes_in_flight_ += buckets_[bucket].bytes;
  ++exchanges_;
  changed_at_ = link_->now();
  auto transfers = std::make_unique<BucketTransfers>();
  const size_t nodes = nodes_.count();
  for (auto* by_node :
       {&transfers->shards_out, &transfers->shards_in, &transfers->results_out, &transfers->results_in})
    by_node->resize(nodes);
  if (checks_training_steps_) {
    transfers->training_steps_out.resize(nodes);
    transfers->training_steps_in.resize(nodes);
    transfers->training_steps = std::shared_ptr<uint32_t[]>(new uint32_t[nodes]);
    const bool is_zero_copy = states_[bucket].active_send_buffer.load(std::memory_order_relaxed) != nullptr;
    transfers->training_steps[own_node_] =
        is_zero_copy ? states_[bucket].training_step : intranode_->training_step(bucket);
  }
  transfers->incoming = take_buffer(incoming_bytes(bucket));
  transfers->since = link_->now();
  transfers->next_warning = transfers->since + group_->options().warn_every;
  states_[bucket].transfers = std::move(transfers);
  BucketTransfers& started = *states_[bucket].transfers;
  const transport::Tag tag = tag_of(bucket);
  // what other nodes may still receive after a failure
  const std::shared_ptr<const void> owner =
      states_[bucket].owner != nullptr ? states_[bucket].owner : intranode_->memory();
  for (size_t node = 0; node < nodes; ++node) {
    if (node == own_node_) continue;
    if (checks_training_steps_) {
      const auto bytes_of = [&](size_t k) {
        return std::as_writable_bytes(std::span(&started.training_steps[k], 1));
      };
      started.training_steps_out[node] = link_->send(node, tag, bytes_of(own_node_), started.training_steps);
      started.training_steps_in[node] = link_->receive(node, tag, bytes_of(node), started.training_steps);
    }
    started.shards_out[node] = link_->send(node, tag, node_sums(bucket, shard_of(bucket, node)), owner);
    started.shards_in[node] = link_->receive(node, tag, incoming(bucket, node), started.incoming);
  }
  link_->begin_operation();
  if (publishes_wait_edge_) link_->publish_wait_edge(started.training_steps_in, name_);
}

bool InternodeReduction::check_training_steps(const BucketTransfers& transfers) {
  const uint32_t own = checks_training_steps_ ? transfers.training_steps[own_node_] : 0;
  if (own == 0) return true;
  for (size_t node = 0; node < nodes_.count(); ++node) {
    const uint32_t other = transfers.training_steps[node];
    if (other == own || other == 0) continue;
    (void)group_->fail(different_steps(name_, {nodes_.leader(own_node_), own}, {nodes_.leader(node), other}));
    return false;
  }
  return true;
}

bool InternodeReduction::advance_exchange(size_t bucket) {
  BucketTransfers& transfers = *states_[bucket].transfers;
  const transport::Tag tag = tag_of(bucket);
  const bool one_shot = is_one_shot(bucket);
  const bool is_zero_copy = states_[bucket].active_send_buffer.load(std::memory_order_relaxed) != nullptr;
  // one-shot, the results overwrite the node's sums, which must have been sent
  if (!transfers.reduced && all_complete(transfers.training_steps_in, own_node_) &&
      all_complete(transfers.shards_in, own_node_) &&
      (!one_shot || is_zero_copy || all_complete(transfers.shards_out, own_node_))) {
    if (!check_training_steps(transfers)) return false;
    reduce(bucket);
    transfers.reduced = true;
    for (size_t node = 0; node < nodes_.count() && !one_shot; ++node) {
      if (node == own_node_) continue;
      transfers.results_out[node] =
          link_->send(node, tag, sums(shard_of(bucket, own_node_)), intranode_->memory());
    }
  }
  for (size_t node = 0; node < nodes_.count() && !one_shot; ++node) {
    if (node == own_node_ || transfers.results_in[node] != nullptr) continue;
    // Results land in the buffer from which the shards are still being sent.
    if (!is_zero_copy && !transfers.shards_out[node]->ended()) continue;
    // Post the receive of a rendezvous-sized result only after our own result is sent, for full duplex; see
    // kEagerLimit.
    if (!transfers.reduced && shard_of(bucket, node).bytes() > transport::kEagerLimit) continue;
    transfers.results_in[node] =
        link_->receive(node, tag, sums(shard_of(bucket, node)), intranode_->memory());
  }
  check_peers(bucket);
  const bool complete = transfers.reduced && all_complete(transfers.training_steps_out, own_node_) &&
                        all_complete(transfers.shards_out, own_node_) &&
                        (one_shot || (all_complete(transfers.results_in, own_node_) &&
                                      all_complete(transfers.results_out, own_node_)));
  if (!complete || !group_->failure().ok()) return false;
  free_buffers_.emplace_back(incoming_bytes(bucket), std::move(transfers.incoming));
  end_transfers(bucket);
  awaits_other_node().store(false);
  bytes_in_flight_ -= buckets_[bucket].bytes;
  --exchanges_;
  changed_at_ = link_->now();
  return true;
}

void InternodeReduction::reduce(size_t bucket) {
  const Range mine = shard_of(bucket, own_node_);
  std::vector<const std::byte*> partials;
  for (size_t node = 0; node < nodes_.count(); ++node)
    partials.push_back(node == own_node_ ? node_sums(bucket, mine).data() : incoming(bucket, node).data());
  const DType dtype = buckets_[bucket].dtype;
  collective::reduce(dtype, Reduction::kSum, partials.data(), partials.size(), sums(mine).data(),
                     mine.bytes() / size_of(dtype));
}

void InternodeReduction::check_peers(size_t bucket) {
  BucketTransfers& transfers = *states_[bucket].transfers;
  const Duration now = link_->now();
  for (size_t node = 0; node < nodes_.count(); ++node) {
    if (node == own_node_) continue;
    bool open = false;
    for (const auto* by_node : transfers.all()) {
      if (by_node->empty() || (*by_node)[node] == nullptr) continue;
      const transport::TransferPtr& transfer = (*by_node)[node];
      if (!transfer->ended()) {
        open = true;
      } else if (!transfer->completed_in_full()) {
        if (!link_->is_leaving()) (void)group_->fail_in("the exchange of " + name_, transfer->error());
        return;
      }
    }
    if (!open) continue;
    const auto place = [&] {
      return text("rank ", group_->job_rank(group_->rank()), " waits for ", name_, " of ",
                  nodes_.describe(node));
    };
    if (link_->has_departed(node)) {
      transfers.departed_since = std::min(transfers.departed_since, now);
      if (now - transfers.departed_since >= group_->options().failure_delay)
        (void)group_->fail({Code::kPeerLost, place() +
                                                 ", which ended; make the same calls with the same number "
                                                 "of batches on every rank"});
    }
    const std::string wait = made_by_creator_thread_ ? link_->exclusive_wait_of(node, transfers.since) : "";
    if (!wait.empty()) {
      (void)group_->fail(
          {Code::kMismatch, text(place(), ", which waits in ", wait,
                                 "; make the same calls in the same order on every rank, under no "
                                 "condition on its own rows or loss")});
    }
    const Duration waited = now - transfers.since;
    if (waited > kLong) awaits_other_node().store(true);
    if (group_->check_stall_timeout(waited, NodeGroup::kStallDelayIfRemote))
      (void)group_->fail_stalled(text("rank ", group_->job_rank(group_->rank()), " waits for ", name_, ": "),
                                 nodes_.describe(node), waited);
    if (now >= transfers.next_warning) {
      transfers.next_warning = now + group_->options().warn_every;
      log_warning(
          text(place(), ": nothing came for ", static_cast<int>(in_seconds(now - transfers.since)), " s"));
    }
  }
}

std::atomic<bool>& InternodeReduction::awaits_other_node() const {
  return group_->rank_table().waits(group_->job_rank(group_->rank())).awaits_other_node;
}

std::shared_ptr<std::byte[]> InternodeReduction::take_buffer(size_t bytes) {
  const auto found = std::find_if(free_buffers_.begin(), free_buffers_.end(),
                                  [bytes](const auto& each) { return each.first == bytes; });
  if (found == free_buffers_.end()) return std::shared_ptr<std::byte[]>(new std::byte[bytes]);
  auto buffer = std::move(found->second);
  free_buffers_.erase(found);
  return buffer;
}

}  // namespace tarantella::collective::internode
