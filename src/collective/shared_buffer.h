#pragma once
// Memory of every rank that all ranks see: what lies there is reduced in place, without a copy to a stage.

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
  /// Collective: `bytes` of zeros for each rank. Errors: kOutOfMemory, on all ranks; kMismatch.
  static Result<std::unique_ptr<SharedBuffer>> create(Stage& stage, size_t bytes);

  /// This rank's bytes, 64-byte aligned. Other ranks read and write them only within allreduce().
  std::span<std::byte> own() const { return of(static_cast<size_t>(rank_)); }

  /// Collective, as the one in operations.h: the first `count` elements of own() become their reduction over ranks.
  /// Errors as there; kInvalidArgument for more than there is room for.
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
