#pragma once
// Owners of a file descriptor and of a memory mapping: each is closed exactly once. And a file of a parent.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

namespace tarantella {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, size_t bytes) : address_(address), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (address_ != nullptr) ::munmap(address_, bytes_);
  }

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(address_), bytes_}; }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

/// The descriptor that the environment variable `name` holds, or -1 if there is none that is a file of `bytes` bytes: a
/// parent of this process may have closed it and opened another file.
inline int inherited_file(const char* name, size_t bytes) {
  const char* const variable = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (variable == nullptr) return -1;
  const std::string_view digits(variable);
  int file = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), file);
  struct stat found{};
  const bool is_it = file >= 0 && ::fstat(file, &found) == 0 && found.st_size == static_cast<off_t>(bytes);
  return is_it ? file : -1;
}

}  // namespace tarantella
