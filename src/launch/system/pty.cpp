#include "launch/system/pty.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cerrno>

namespace tarantella::launch {

Result<Pty> open_pty(int like) {
  Pty pty{Fd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)), {}};
  char name[128];
  if (!pty.read_end.valid() || ::grantpt(pty.read_end.get()) != 0 || ::unlockpt(pty.read_end.get()) != 0 ||
      ::ptsname_r(pty.read_end.get(), name, sizeof name) != 0)
    return Status::system("posix_openpt", errno);
  pty.write_end = Fd(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!pty.write_end.valid() || ::tcgetattr(pty.write_end.get(), &settings) != 0)
    return Status::system("open of a terminal", errno);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // the user's terminal does that
  ::tcsetattr(pty.write_end.get(), TCSANOW, &settings);
  copy_window_size(like, pty.read_end.get());
  return pty;
}

void copy_window_size(int from, int to) {
  winsize size{};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) ::ioctl(to, TIOCSWINSZ, &size);
}

}  // namespace tarantella::launch
