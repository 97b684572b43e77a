#include "launch/ranks/snapshot_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/memory.h"

namespace tarantella::launch {
namespace {

constexpr size_t kNumber = sizeof(uint64_t);

off_t size_of(const Fd& file) {
  struct stat found{};
  return ::fstat(file.get(), &found) == 0 ? found.st_size : 0;
}

std::string read_at(const Fd& file, off_t offset, size_t bytes) {
  std::string content(bytes, '\0');
  const ssize_t got = ::pread(file.get(), content.data(), bytes, offset);
  content.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return content;
}

/// The sequence number of the snapshot in the file, 0 if it is not whole.
uint64_t sequence_of(const Fd& file) {
  constexpr size_t kEnd = SnapshotMemory::kMark.size() + kNumber;
  const off_t size = size_of(file);
  if (size < static_cast<off_t>(kEnd)) return 0;
  const std::string end = read_at(file, size - static_cast<off_t>(kEnd), kEnd);
  if (!end.starts_with(SnapshotMemory::kMark)) return 0;
  uint64_t sequence = 0;
  for (size_t i = kEnd; i-- > SnapshotMemory::kMark.size();)
    sequence = sequence << 8 | static_cast<unsigned char>(end[i]);
  return sequence;
}

}  // namespace

Result<SnapshotMemory> SnapshotMemory::make() {
  SnapshotMemory memory;
  for (Fd& file : memory.files_) {
    file = runtime::make_memfd("tarantella-snapshot", 0);
    if (!file.valid()) return Status::system("memfd_create", errno);
  }
  return memory;
}

std::string SnapshotMemory::descriptors() const {
  return std::to_string(files_[0].get()) + "," + std::to_string(files_[1].get());
}

size_t SnapshotMemory::newest_index() const {
  return sequence_of(files_[1]) > sequence_of(files_[0]) ? 1 : 0;
}

uint64_t SnapshotMemory::newest() const { return sequence_of(files_[newest_index()]); }

std::string SnapshotMemory::read_newest(off_t offset, size_t bytes) const {
  return read_at(files_[newest_index()], offset, bytes);
}

void SnapshotMemory::clear_older() { (void)::ftruncate(files_[1 - newest_index()].get(), 0); }

bool SnapshotMemory::append_to_older(std::string_view bytes) {
  const Fd& file = files_[1 - newest_index()];
  for (off_t end = size_of(file); !bytes.empty();) {
    const ssize_t written = ::pwrite(file.get(), bytes.data(), bytes.size(), end);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
    end += written;
  }
  return true;
}

}  // namespace tarantella::launch
