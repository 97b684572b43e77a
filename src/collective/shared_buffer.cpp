#include "collective/shared_buffer.h"

#include <algorithm>
#include <cstring>

#include "base/round.h"
#include "collective/arguments.h"
#include "collective/kernels.h"
#include "collective/slices.h"

namespace tarantella::collective {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMost = 1'000'000'000'000;  // bytes a rank; far above any machine, far below an overflow
constexpr size_t kBlock = 16 * 1024;         // bytes: from reduction to copy they stay in the nearest cache

size_t stride(size_t bytes) { return round_up(bytes, kPage); }

}  // namespace

Result<std::unique_ptr<SharedBuffer>> SharedBuffer::create(Stage& stage, size_t bytes) {
  Group& group = stage.group();
  TNT_RETURN_IF_ERROR(stage.agree({.operation = Operation::kBuffer, .count = bytes}));
  if (bytes > kMost)
    return Status(Code::kInvalidArgument,
                  text("a shared buffer of ", bytes, " bytes is more than any machine has"));
  auto region = group.map(stride(bytes) * static_cast<size_t>(group.size()), "a shared buffer");
  if (!region.ok()) return region.status();
  return std::unique_ptr<SharedBuffer>(new SharedBuffer(std::move(region).value(), group.rank(), bytes));
}

std::span<std::byte> SharedBuffer::of(size_t rank) const {
  return region_.bytes.subspan(rank * stride(bytes_), bytes_);
}

Status SharedBuffer::allreduce(Stage& stage, size_t count, DType dtype, Reduction reduction,
                               std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype, reduction));
  if (count > bytes_ / size_of(dtype))
    return {Code::kInvalidArgument, text("allreduce \"", name, "\" of ", count, " x ", name_of(dtype),
                                         " in a shared buffer of ", bytes_, " bytes")};
  const size_t bytes = count * size_of(dtype);
  const Call call{Operation::kSharedAllreduce, name, dtype, reduction, 0, count, {}};
  TNT_RETURN_IF_ERROR(stage.agree(call));
  const size_t size = stage.size();
  std::vector<const std::byte*> inputs(size);
  const Range mine = slice_of(bytes, static_cast<size_t>(rank_), size);
  for (size_t begin = mine.begin; begin < mine.end; begin += kBlock) {
    const size_t block = std::min(kBlock, mine.end - begin);
    for (size_t other = 0; other < size; ++other) inputs[other] = of(other).data() + begin;
    std::byte* const result = own().data() + begin;
    reduce(dtype, reduction, inputs.data(), size, result, block / size_of(dtype));
    for (size_t other = 0; other < size; ++other) {
      if (other != static_cast<size_t>(rank_)) std::memcpy(of(other).data() + begin, result, block);
    }
  }
  return stage.agree(call);
}

}  // namespace tarantella::collective
