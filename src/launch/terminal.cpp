#include "launch/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cerrno>

namespace tarantella::launch {

Result<Terminal> open_terminal(int like) {
  Terminal terminal{Fd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)), {}};
  char name[128];
  if (!terminal.reads.valid() || ::grantpt(terminal.reads.get()) != 0 ||
      ::unlockpt(terminal.reads.get()) != 0 || ::ptsname_r(terminal.reads.get(), name, sizeof name) != 0)
    return Status::system("posix_openpt", errno);
  terminal.writes = Fd(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!terminal.writes.valid() || ::tcgetattr(terminal.writes.get(), &settings) != 0)
    return Status::system("open of a terminal", errno);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // the user's terminal does that
  ::tcsetattr(terminal.writes.get(), TCSANOW, &settings);
  copy_window_size(like, terminal.reads.get());
  return terminal;
}

void copy_window_size(int from, int to) {
  winsize size{};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) ::ioctl(to, TIOCSWINSZ, &size);
}

}  // namespace tarantella::launch
