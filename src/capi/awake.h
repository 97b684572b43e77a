#pragma once
// Whether the CPUs of a rank are kept awake, and by what.

#include <memory>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "runtime/awake/awake.h"

namespace tarantella::capi {

/// Thread-safe.
class KeptAwake {
 public:
  /// Until as many end(). kSystem with the reason where it is not to be; the first call decides. `own_cores`: of this
  /// rank alone; `several`: also if there is more than one CPU.
  Status begin(bool own_cores, bool several);
  void end();
  /// Ends the threads for good.
  void close();
  /// CPU time of the threads.
  Duration used();

 private:
  Status start(bool own_cores, bool several);

  std::mutex mutex_;
  std::optional<Status> decision_;
  int calls_ = 0;
  Duration used_{};  ///< by threads that have ended
  std::unique_ptr<runtime::Awake> awake_;
};

}  // namespace tarantella::capi
