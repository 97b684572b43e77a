#include <cstring>

#include "collective/across/operations.h"
#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/kernels.h"

namespace tarantella::collective::across {
namespace {

/// One chunk of an allreduce, after all ranks of the node have put their values on the stage.
class Chunk {
 public:
  Chunk(Across& across, const Call& call, size_t bytes)
      : across_(across),
        call_(call),
        bytes_(bytes),
        widened_(size_of(dtype_of_parts(call.dtype)) / size_of(call.dtype)) {}

  /// The bytes of a node's part.
  size_t wide() const { return bytes_ * widened_; }
  bool is_few() const { return wide() <= few_bytes(across_.nodes().count()); }

  /// Reduces `range`, in bytes of the part, of the node's values into `output`.
  void reduce_node(const std::byte* own, Range range, std::byte* output) {
    const size_t offset = range.begin / widened_;
    reduce_part(call_.dtype, call_.reduction, across_.node().inputs(own + offset, bytes_, offset),
                across_.node().size(), output, range.bytes() / size_of(dtype_of_parts(call_.dtype)));
  }

  /// With few bytes the leaders give each other their parts, and each reduces them all.
  Status exchange_few(const std::byte* own) {
    Exchange& exchange = *across_.exchange();
    reduce_node(own, {0, wide()}, exchange.few());
    TNT_RETURN_IF_ERROR(exchange.meet(call_, wide()));
    std::vector<const std::byte*> parts;
    for (size_t node = 0; node < exchange.nodes(); ++node) parts.push_back(exchange.few_of(node));
    reduce_nodes(parts, {0, bytes_});
    return {};
  }

  /// Part j of the node's values goes to node j, which reduces it and gives the result to all.
  Status exchange_many() {
    Exchange& exchange = *across_.exchange();
    const std::string what = text("the exchange of an allreduce \"", call_.name, "\"");
    const Range mine = exchange.part(bytes_);
    const size_t each = mine.bytes() * widened_;
    const std::shared_ptr<std::byte[]> incoming(new std::byte[each * exchange.nodes() + 1]);
    std::vector<const std::byte*> parts;
    std::vector<Exchange::Message> sends, receives, results_out, results_in;
    for (size_t node = 0; node < exchange.nodes(); ++node) {
      const Range theirs = exchange.part_of(bytes_, node);
      std::byte* const place = incoming.get() + each * node;
      parts.push_back(node == exchange.node() ? across_.part() + mine.begin * widened_ : place);
      if (node == exchange.node()) continue;
      sends.push_back({node, {across_.part() + theirs.begin * widened_, theirs.bytes() * widened_}});
      receives.push_back({node, {place, each}});
      results_out.push_back({node, {across_.result() + mine.begin, mine.bytes()}});
      results_in.push_back({node, {across_.result() + theirs.begin, theirs.bytes()}});
    }
    const auto owner = std::make_shared<std::pair<std::shared_ptr<std::byte[]>, std::shared_ptr<void>>>(
        incoming, across_.memory());
    TNT_RETURN_IF_ERROR(exchange.move(Stream::kPart, sends, receives, owner, what));
    reduce_nodes(parts, mine);
    return exchange.move(Stream::kResult, results_out, results_in, owner, what);
  }

 private:
  void reduce_nodes(const std::vector<const std::byte*>& parts, Range range) {
    reduce_parts(call_.dtype, call_.reduction, parts.data(), parts.size(), across_.nodes().ranks(),
                 across_.result() + range.begin, range.bytes() / size_of(call_.dtype));
  }

  Across& across_;
  const Call& call_;
  const size_t bytes_;
  const size_t widened_;
};

}  // namespace

Status allreduce(Across& across, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype, reduction));
  const Call call{Operation::kAllreduce, name, dtype, reduction, 0, count, {}};
  Stage& node = across.node();
  const auto local = static_cast<size_t>(node.rank());
  return for_each_chunk(count * size_of(dtype), node.chunk(), [&](size_t offset, size_t bytes) -> Status {
    Chunk chunk(across, call, bytes);
    const std::byte* own = at(input, offset);
    node.put(own, bytes);
    TNT_RETURN_IF_ERROR(node.agree(call));
    if (!chunk.is_few()) {
      const Range mine = slice_of(chunk.wide(), local, node.size());
      chunk.reduce_node(own, mine, across.part() + mine.begin);
      TNT_RETURN_IF_ERROR(node.agree(call));
    }
    if (across.exchange() != nullptr) {
      if (chunk.is_few()) {
        TNT_RETURN_IF_ERROR(chunk.exchange_few(own));
      } else {
        if (offset == 0) TNT_RETURN_IF_ERROR(across.exchange()->meet(call, 0));
        TNT_RETURN_IF_ERROR(chunk.exchange_many());
      }
    }
    TNT_RETURN_IF_ERROR(node.agree(call));
    copy_bytes(at(output, offset), across.result(), bytes);
    return {};
  });
}

}  // namespace tarantella::collective::across
