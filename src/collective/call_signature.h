#pragma once
// A collective call as other ranks see it. All ranks must make the same call; a difference is found before any data is
// used.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/reduction.h"
#include "collective/node_group.h"

namespace tarantella::collective {

enum class Operation : uint32_t {
  kAllreduce = 1,
  kBroadcast = 2,
  kAllgather = 3,
  kBarrier = 4,
  kReduceScatter = 5,
  kAlltoall = 6,
  kGroup = 7,
  kPlan = 8,
};

struct CallSignature {
  Operation operation = Operation::kBarrier;
  std::string_view name{};
  DType dtype = DType::kUInt8;
  Reduction reduction = Reduction::kSum;
  int root = 0;  ///< its number in the job
  uint64_t count = 0;
  std::span<const uint64_t> counts{};  ///< more numbers that must be equal on all ranks
};

/// A call in shared memory, without its name.
struct Header {
  Operation operation;
  DType dtype;
  Reduction reduction;
  int32_t root;
  uint64_t count;
  uint64_t hash;  ///< of the call's name and counts

  static Header of(const CallSignature& call) {
    uint64_t hash = hash_of(call.name);
    for (const uint64_t number : call.counts) hash = mix(hash, number);
    return {call.operation, call.dtype, call.reduction, call.root, call.count, hash};
  }
  bool operator==(const Header&) const = default;
};

/// A call's name in shared memory, zeroed at first; truncated if it is too long.
struct Name {
  std::array<char, 176> text;
  uint64_t hash;  ///< that of the header with which the name was written

  /// Writes the name of `call`, unless it is here already.
  void set(const CallSignature& call, const Header& header) {
    if (hash != header.hash) write(call, header);
  }
  void write(const CallSignature& call, const Header& header);
};

/// The call in an error message: allreduce "x" of 3 x float32 (sum).
std::string describe(const Header& header, const Name& name);

/// kMismatch: `rank` called `second` while `before` called `first`. Ranks are those of the job.
Status difference(int before, const std::string& first, int rank, const std::string& second);

/// Fails the group with kMismatch: its `rank` called `second` while rank 0 called `first`.
Status fail_for_difference(NodeGroup& group, const std::string& first, int rank, const std::string& second);

}  // namespace tarantella::collective
