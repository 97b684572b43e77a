#include "runtime/report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tarantella::runtime {
namespace {

/// The pipe's descriptor, or -1 if the number does not mean that pipe in this process.
int descriptor_of_pipe() {
  const char* variable = std::getenv("TNT_REPORT");  // NOLINT(concurrency-mt-unsafe)
  if (variable == nullptr) return -1;
  const char* const end = variable + std::strlen(variable);
  int number = -1;
  uint64_t inode = 0;
  const char* const colon = std::from_chars(variable, end, number).ptr;
  if (colon == end || *colon != ':' || std::from_chars(colon + 1, end, inode).ptr != end) return -1;
  struct stat found{};
  const bool same = ::fstat(number, &found) == 0 && S_ISFIFO(found.st_mode) && found.st_ino == inode;
  return same ? number : -1;
}

}  // namespace

bool report(int rank, ReportKind kind, const std::string& text) {
  const int pipe = descriptor_of_pipe();
  if (pipe < 0) return false;
  int32_t head[4] = {rank, static_cast<int32_t>(kind), 0, 0};
  constexpr size_t kLongest = PIPE_BUF - sizeof head;  // the kernel would mix a longer one with others
  for (size_t at = 0;; at += kLongest) {
    const std::string piece = text.substr(at, kLongest);
    const bool is_last = at + piece.size() == text.size();
    head[1] = static_cast<int32_t>(is_last ? kind : ReportKind::kMore);
    head[3] = static_cast<int32_t>(piece.size());
    const std::string record = std::string(reinterpret_cast<const char*>(head), sizeof head) + piece;
    if (::write(pipe, record.data(), record.size()) != static_cast<ssize_t>(record.size())) return false;
    if (is_last) return true;
  }
}

}  // namespace tarantella::runtime
