#pragma once
// Memory of each rank that all ranks see. Its elements are reduced in place, without a copy to a stage.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/reduction.h"
#include "collective/stage.h"

namespace tarantella::collective {

class SharedBuffer {
 public:
  /// Collective, blocks. Gives each rank `bytes` bytes, zeroed. Errors: kOutOfMemory, on all ranks; kMismatch.
  static Result<std::unique_ptr<SharedBuffer>> create(Stage& stage, size_t bytes);

  /// This rank's bytes, aligned to 64. Other ranks read and write them only during allreduce().
  std::span<std::byte> own() const { return of(static_cast<size_t>(rank_)); }

  /// Collective, blocks. Replaces the first `count` elements of own() by their reduction over the ranks. Errors as in
  /// operations.h; kInvalidArgument if own() has fewer elements.
  Status allreduce(Stage& stage, size_t count, DType dtype, Reduction reduction, std::string_view name);

 private:
  SharedBuffer(transport::Region region, int rank, size_t bytes)
      : region_(std::move(region)), rank_(rank), bytes_(bytes) {}
  std::span<std::byte> of(size_t rank) const;

  const transport::Region region_;
  const int rank_;
  const size_t bytes_;
};

}  // namespace tarantella::collective
