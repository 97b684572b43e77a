#pragma once
// What every function of the C interface does: it lets no exception out, and keeps its error for tnt_last_error().

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "base/fork_count.h"
#include "base/status.h"
#include "tarantella/tarantella.h"

namespace tarantella::capi {

/// Keeps the message of `status` for tnt_last_error() on this thread, and returns its code.
tnt_code report(const Status& status);

/// Runs `body`, which returns a Status, and reports that status, or the exception that `body` throws.
template <typename Body>
tnt_code guarded(Body body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report({Code::kOutOfMemory, "out of memory"});
  } catch (const std::system_error& error) {
    return report(
        {Code::kSystem, text("the core cannot continue: ", error.what(),
                             "; this host may limit processes (ulimit -u, pids of a cgroup) or memory")});
  } catch (const std::exception& error) {
    return report({Code::kSystem, text("unexpected error in the core: ", error.what())});
  }
}

inline Status invalid(const std::string& message) { return {Code::kInvalidArgument, message}; }

/// kInvalidArgument unless `own` is true: whether this process, not its parent, made the object that is used.
inline Status check_process(bool own) {
  if (own) return {};
  return invalid("a forked child of a rank takes no part in the job; exchange data in the rank itself");
}

/// A string of the C interface, where NULL stands for an empty one.
inline std::string name_of(const char* name) { return name == nullptr ? "" : name; }
inline std::string_view text_of(const char* name) { return name == nullptr ? "" : name; }

}  // namespace tarantella::capi
