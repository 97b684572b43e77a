#include "launch/output/reports.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace tarantella::launch {

std::vector<Report> ReportReader::add(std::string_view data) {
  std::vector<Report> reports;
  pending_ += data;
  int32_t head[4];
  constexpr size_t kHead = sizeof(head);
  while (!broken_ && pending_.size() >= kHead) {
    std::memcpy(head, pending_.data(), kHead);
    const auto [rank, kind, code, size] = head;
    broken_ = rank < first_ || rank >= first_ + ranks_ || kind < 0 ||
              kind > static_cast<int>(Report::Kind::kProgress) || size < 0 ||
              static_cast<size_t>(size) > kLongest;
    if (broken_ || pending_.size() < kHead + static_cast<size_t>(size)) break;
    std::string& text = text_[rank];
    text += pending_.substr(kHead, static_cast<size_t>(size));
    pending_.erase(0, kHead + static_cast<size_t>(size));
    if (text.size() > kMostText) text.resize(kMostText);
    if (static_cast<Report::Kind>(kind) == Report::Kind::kMore) continue;
    const size_t end = text.find('\0');
    const std::string blocked_by = end == std::string::npos ? "" : text.substr(end + 1);
    reports.push_back({static_cast<Report::Kind>(kind), rank, code, text.substr(0, end), blocked_by});
    text.clear();
  }
  if (broken_) pending_.clear();
  return reports;
}

Result<ReportPipe> ReportPipe::open() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::system("pipe2", errno);
  ReportPipe pipe;
  pipe.read_ = Fd(ends[0]);
  pipe.write_ = Fd(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  struct stat status{};
  if (::fstat(ends[1], &status) != 0) return Status::system("fstat", errno);
  pipe.variable_ = text("TNT_REPORT=", ends[1], ":", status.st_ino);
  return pipe;
}

std::string ReportPipe::read_some() {
  std::string all;
  char buffer[16 * 1024];
  // A pipe holds at most 1 MiB; a process that goes on writing must not keep the launcher in this loop.
  for (int reads = 0; reads < 64; ++reads) {
    const ssize_t bytes = ::read(read_.get(), buffer, sizeof buffer);
    if (bytes == 0) read_ = Fd();
    if (bytes <= 0) break;
    all.append(buffer, static_cast<size_t>(bytes));
  }
  return all;
}

}  // namespace tarantella::launch
