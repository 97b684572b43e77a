#pragma once
// Shows where this rank's program is, if ranks have waited for one another for too long.

#include "engine/communicator.h"
#include "engine/engine.h"

namespace tarantella::capi {

/// See tnt_show_stacks().
class Stacks final : private engine::Driven {
 public:
  /// `communicator` must outlive it.
  Stacks(engine::Communicator& communicator, int signal, int descriptor);
  ~Stacks() override;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

 private:
  Need advance() override;

  engine::Communicator& communicator_;
  const int signal_, descriptor_;
  bool shown_ = false;
};

}  // namespace tarantella::capi
