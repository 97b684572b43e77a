#pragma once
// The tags of messages between leaders.

#include "transport/endpoint.h"

namespace tarantella::collective::internode {

enum class MessageTag : transport::Tag {
  kStatus,   ///< a NodeStatus
  kDetails,  ///< a call in full; sent only if calls differ
  kShard,  ///< a shard of a node's values, for the node that reduces it or gives it to all. If calls differ, it may be
           ///< longer than its receive, so the tag is not pre-posted
  kCall = transport::kFirstPrepostedTag,  ///< which call a node makes, with its inline payload
  kResult,                                ///< a shard that is complete
  kPrepostedShard,  ///< as kShard, where it cannot be longer than its receive: all leaders are known to
                    ///< make this call, or the receive has room for the longest shard of any call
};
/// Tags from here on belong to plans. All are pre-posted: the nodes of a plan know the length of each message.
constexpr transport::Tag kFirstPlanTag = 16;

}  // namespace tarantella::collective::internode
