#pragma once
// Memory of a caller that hears when the core has let go of it.

#include <memory>

#include "capi/guard.h"
#include "tarantella/tarantella.h"

namespace tarantella::capi {

/// Makes `owner`, which calls released(user) with its last copy; nullptr without `released`. TNT_OUT_OF_MEMORY, after
/// that call, where there is no memory for it.
inline tnt_code make_owner(tnt_released released, void* user, std::shared_ptr<const void>& owner) noexcept {
  if (released == nullptr) return TNT_OK;
  return guarded([&]() -> Status {
    static const char held = 0;  // not the caller's pointer, which may be NULL
    owner = std::shared_ptr<const void>(&held, [released, user](const void*) { released(user); });
    return {};
  });
}

}  // namespace tarantella::capi
