#pragma once
// What the leaders of other nodes have posted (see Group::post()), in the memory of this node: its leader writes what
// it hears, and all its ranks read it.

#include <memory>
#include <optional>
#include <string>

#include "collective/across/nodes.h"
#include "collective/group.h"

namespace tarantella::collective::across {

/// Calls are those of the job, which all ranks count alike.
struct Post {
  uint64_t key;
  uint32_t value;
  uint32_t call;  ///< how many calls the rank had made
};

/// One rank's view.
class Posts {
 public:
  /// Collective over the ranks of the node. Errors: those of Group::map().
  static Result<std::unique_ptr<Posts>> create(Group& group, const Nodes& nodes);

  static Post make(const std::string& name, uint32_t value, uint32_t call);

  /// What the leader of `node` has said. For one thread at a time of this node's leader.
  void heard(size_t node, const Post& post);
  /// The leader of `node` has made so many calls; all that it has posted before the last one was heard.
  void heard_calls(size_t node, uint32_t calls);
  void heard_leave(size_t node);

  /// As Group::await_post(), where this rank has made `calls` calls; `from` is the leader of another node. For one
  /// thread at a time.
  Result<uint32_t> await(int from, const std::string& name, uint32_t calls);
  /// As Group::find_post(); `from` is the leader of another node.
  Result<std::optional<uint32_t>> find(int from, const std::string& name);

 private:
  struct alignas(64) Row {
    Word calls;
    Word left;
    alignas(64) Board board;
  };

  Posts(Group& group, Nodes nodes, transport::Region region);
  Row& row(size_t node) const { return reinterpret_cast<Row*>(region_.bytes.data())[node]; }

  Group& group_;
  const Nodes nodes_;
  const transport::Region region_;
  PostWaits waits_;
};

}  // namespace tarantella::collective::across
