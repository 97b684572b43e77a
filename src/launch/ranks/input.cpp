#include "launch/ranks/input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tarantella::launch {

Input::Input() {
  struct stat info{};
  const int flags = ::fcntl(STDIN_FILENO, F_GETFL);
  if (::fstat(STDIN_FILENO, &info) != 0 || flags < 0 || (flags & O_ACCMODE) == O_WRONLY) return;
  is_file_ = S_ISREG(info.st_mode);
  if (is_file_) offset_ = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
  if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)) watched_ = STDIN_FILENO;
}

Fd Input::reopen() const {
  if (!is_file_) return {};
  // The file itself, since its name may be deleted.
  Fd file(::open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC));
  if (!file.valid() || ::lseek(file.get(), offset_, SEEK_SET) < 0) return {};
  return file;
}

bool Input::is_redirected() const {
  struct stat info{};
  return is_file_ && offset_ == 0 && ::fstat(STDIN_FILENO, &info) == 0 && info.st_size > 0;
}

bool Input::has_data() {
  pollfd now{watched_, POLLIN, 0};
  if (watched_ < 0 || ::poll(&now, 1, 0) <= 0) return false;
  watched_ = -1;
  return (now.revents & POLLIN) != 0;
}

}  // namespace tarantella::launch
