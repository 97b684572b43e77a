#pragma once
// Offsets into the buffers of a call, and copies between them, where a rank without data passes nullptr. Pure.

#include <cstddef>
#include <cstring>

namespace tarantella::collective {

/// `data` + `offset` bytes; nullptr if `data` is nullptr, which a rank without data may pass.
inline const std::byte* at(const void* data, size_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}
inline std::byte* at(void* data, size_t offset) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset;
}

inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace tarantella::collective
