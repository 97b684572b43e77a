#include "collective/internode/internode_resources.h"

#include <utility>

namespace tarantella::collective::internode {

Result<std::unique_ptr<InternodeResources>> InternodeResources::create(StagingBuffers& staging,
                                                                       const NodeMap& nodes,
                                                                       std::shared_ptr<LeaderLink> link) {
  auto region = staging.group().map((kMaxWidthFactor + 1) * exchange_chunk_bytes(nodes),
                                    "the collectives between nodes");
  if (!region.ok()) return region.status();
  return std::unique_ptr<InternodeResources>(
      new InternodeResources(staging, nodes, std::move(link), std::move(region).value()));
}

InternodeResources::InternodeResources(StagingBuffers& staging, NodeMap nodes,
                                       std::shared_ptr<LeaderLink> link, transport::Region region)
    : staging_(staging),
      nodes_(std::move(nodes)),
      rank_(staging.group().job_rank(staging.rank())),
      link_(std::move(link)),
      leader_exchange_(link_ == nullptr ? nullptr : std::make_unique<LeaderExchange>(*link_)),
      region_(std::move(region)),
      memory_(std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(region_.owner,
                                                                                        staging.memory())) {}

}  // namespace tarantella::collective::internode
