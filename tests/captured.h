#pragma once
// What a test has said on stderr so far.

#include <unistd.h>

#include <string>

namespace tarantella {

/// What has come on stderr since testing::internal::CaptureStderr(), which goes on: at most 64 KiB.
inline std::string captured_so_far() {
  std::string all(1 << 16, '\0');
  const ssize_t got = ::pread(STDERR_FILENO, all.data(), all.size(), 0);  // a file, open for reading too
  all.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return all;
}

}  // namespace tarantella
