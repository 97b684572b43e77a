#pragma once
// Shows where this rank's program is, if ranks have waited for one another for too long.

#include "engine/context.h"
#include "engine/progress_thread.h"

namespace tarantella::capi {

/// See tnt_show_stacks().
class Stacks final : private engine::Progressable {
 public:
  /// `context` must outlive it.
  Stacks(engine::Context& context, int signal, int descriptor);
  ~Stacks() override;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

 private:
  PollHint advance() override;

  engine::Context& context_;
  const int signal_, descriptor_;
  bool shown_ = false;
};

}  // namespace tarantella::capi
