#pragma once
// Streams of devices, for which this version has no backend.

#include "capi/guard.h"

namespace tarantella::capi {

/// kUnsupported for a stream.
inline Status check_stream(const void* stream) {
  if (stream == nullptr) return {};
  return {Code::kUnsupported,
          "this version has no backend for devices; pass buffers in host memory, and NULL as the stream"};
}

}  // namespace tarantella::capi
