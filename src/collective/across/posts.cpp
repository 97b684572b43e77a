#include "collective/across/posts.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "collective/looked_at.h"

namespace tarantella::collective::across {

Result<std::unique_ptr<Posts>> Posts::create(Group& group, const Nodes& nodes) {
  auto region = group.map(sizeof(Row) * nodes.count(), "the posts of other nodes");
  if (!region.ok()) return region.status();
  return std::unique_ptr<Posts>(new Posts(group, nodes, std::move(region).value()));
}

Posts::Posts(Group& group, Nodes nodes, transport::Region region)
    : group_(group), nodes_(std::move(nodes)), region_(std::move(region)) {}

Post Posts::make(const std::string& name, uint32_t value, uint32_t call) {
  return {hash_of(name), value, call};
}

void Posts::heard(size_t node, const Post& post) {
  row(node).board.post(post.key, post.value, post.call);
  group_.memory().wake(row(node).board.count());
}

void Posts::heard_calls(size_t node, uint32_t calls) {
  row(node).calls.store(calls, std::memory_order_release);
}

void Posts::heard_leave(size_t node) { row(node).left.store(1, std::memory_order_release); }

Result<std::optional<uint32_t>> Posts::find(int from, const std::string& name) {
  TNT_RETURN_IF_ERROR(group_.failure());
  return row(nodes_.node_of(from)).board.last(hash_of(name));
}

Result<uint32_t> Posts::await(int from, const std::string& name, uint32_t calls) {
  TNT_RETURN_IF_ERROR(group_.failure());
  Row& other = row(nodes_.node_of(from));
  LookedAt looked_at(4 * Group::kSlice);
  Duration next_warning = group_.options().warn_every;
  Duration left_since = Duration::max();
  const std::string place = text("rank ", group_.job_rank(group_.rank()), " waits in ", name, ": rank ");
  // what was posted before a call, or before leaving, was heard before it
  const auto went_on = [&] {
    return static_cast<int32_t>(other.calls.load(std::memory_order_acquire) - calls) > 0 ||
           other.left.load(std::memory_order_acquire) != 0;
  };
  const auto check = [&]() -> Status {
    const Duration now = looked_at.look();
    if (now >= next_warning) {
      next_warning = now + group_.options().warn_every;
      log_warning(text(place, from, " did not come for ", static_cast<int>(in_seconds(now)), " s"));
    }
    if (group_.stalls(now, Group::kStallsFar)) return group_.fail_stalled(place, std::to_string(from), now);
    // without this node's leader nothing is heard of other nodes
    if (group_.presence(0) == Presence::kLeft) left_since = std::min(left_since, now);
    if (now - left_since >= group_.options().grace)
      return group_.fail({Code::kPeerLost, text(place, group_.job_rank(0),
                                                " has ended; make the same calls with the same number of "
                                                "batches on every rank")});
    return group_.failure();
  };
  return waits_.await(group_.memory(), {other.board, from, went_on, check}, name, calls);
}

}  // namespace tarantella::collective::across
