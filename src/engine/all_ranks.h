#pragma once
// All ranks of a communicator, whether they are on one node or on several.

#include <span>
#include <string>
#include <vector>

#include "collective/across/operations.h"
#include "collective/operations.h"
#include "collective/stage.h"

namespace tarantella::engine {

/// For one thread at a time, as the stage and `across`, which must outlive it.
class AllRanks {
 public:
  /// `across` is nullptr on one node.
  explicit AllRanks(collective::Stage& node, collective::across::Across* across = nullptr)
      : node_(node), across_(across) {}

  collective::Stage& node() { return node_; }
  collective::Group& group() { return node_.group(); }
  collective::across::Across* across() { return across_; }
  size_t size() const { return across_ == nullptr ? node_.size() : across_->size(); }
  /// The number of a rank in the whole job.
  int job_rank(size_t rank) {
    return across_ == nullptr ? group().job_rank(static_cast<int>(rank)) : static_cast<int>(rank);
  }

  /// Collective. kMismatch on all ranks if their calls differ.
  Status agree(const collective::Call& call) {
    return across_ == nullptr ? node_.agree(call) : collective::across::agree(*across_, call);
  }
  /// Collective. The value of every rank, in rank order.
  Result<std::vector<uint64_t>> gather(uint64_t value, const std::string& what) {
    if (across_ == nullptr) return group().gather(value, what);
    std::vector<uint64_t> values(size());
    const std::vector<uint64_t> counts(size(), 1);
    TNT_RETURN_IF_ERROR(
        collective::across::allgather(*across_, &value, values.data(), counts, DType::kUInt64, what));
    return values;
  }
  /// As in collective/operations.h.
  Status allgather(const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                   std::string_view name) {
    return across_ == nullptr ? collective::allgather(node_, input, output, counts, dtype, name)
                              : collective::across::allgather(*across_, input, output, counts, dtype, name);
  }

 private:
  collective::Stage& node_;
  collective::across::Across* const across_;
};

}  // namespace tarantella::engine
