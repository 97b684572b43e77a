#include "launch/output/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

// A longer line may be cut by lines of the other stream.
constexpr size_t kLongestLine = 64 * 1024;

std::string file_name(const std::string& folder, int rank) { return text(folder, "/rank-", rank, ".log"); }

Status cannot_write(const std::string& path, int error) {
  return {Code::kInvalidArgument,
          text("cannot write logs to '", printable(path), "': ", std::generic_category().message(error))};
}

}  // namespace

Result<LogFiles> LogFiles::open(const std::string& folder, int ranks, int first, bool append) {
  LogFiles logs;
  logs.first_ = first;
  logs.folder_ = folder;
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return cannot_write(folder, errno);
  for (int rank = first; rank < first + ranks; ++rank) {
    const std::string path = file_name(folder, rank);
    if (!append && ::unlink(path.c_str()) != 0 && errno != ENOENT) return cannot_write(path, errno);
    const int how = append ? O_APPEND : O_EXCL;
    File file{Fd(::open(path.c_str(), O_WRONLY | O_CREAT | how | O_CLOEXEC | O_NOFOLLOW, 0600)), {}};
    if (!file.fd.valid()) return cannot_write(path, errno);
    logs.files_.push_back(std::move(file));
  }
  return logs;
}

void LogFiles::write(int rank, bool is_err, std::string_view data) {
  if (files_.empty()) return;
  std::string& partial = files_[static_cast<size_t>(rank)].partial[is_err ? 1 : 0];
  const size_t end = data.find_last_of("\r\n");  // progress bars end their lines by \r
  if (end != std::string_view::npos) {
    partial += data.substr(0, end + 1);
    put(rank, partial);
    partial.clear();
    data.remove_prefix(end + 1);
  }
  partial += data;
  if (partial.size() < kLongestLine) return;
  put(rank, partial);
  partial.clear();
}

void LogFiles::finish(int rank) {
  if (files_.empty()) return;
  for (std::string& partial : files_[static_cast<size_t>(rank)].partial) {
    put(rank, partial);
    partial.clear();
  }
}

void LogFiles::put(int rank, std::string_view data) {
  Fd& fd = files_[static_cast<size_t>(rank)].fd;
  while (!data.empty() && fd.valid()) {
    const ssize_t written = ::write(fd.get(), data.data(), data.size());
    if (written >= 0) {
      data.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      if (failure_.empty()) failure_ = cannot_write(file_name(folder_, first_ + rank), errno).message();
      fd = Fd();  // a file with a gap would mislead
    }
  }
}

std::string LogFiles::failure() { return std::exchange(failure_, ""); }

}  // namespace tarantella::launch
