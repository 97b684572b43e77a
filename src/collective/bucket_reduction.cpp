#include "collective/bucket_reduction.h"

namespace tarantella::collective {

Status different_steps(const std::string& name, Started one, Started other) {
  if (other.rank < one.rank) std::swap(one, other);
  return {Code::kMismatch,
          text("rank ", one.rank, " sums ", name, " of training step ", one.training_step, ", rank ",
               other.rank, " those of step ", other.training_step,
               ": a rank has left out a step or an update, as a condition on its own rows or loss does; make "
               "every rank take the same steps and updates")};
}

}  // namespace tarantella::collective
