#pragma once
// A terminal for what a rank writes to stderr, where the user has one: programs draw progress bars and colours there.

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

struct Pty {
  Fd read_end;   ///< non-blocking; what the program writes, byte for byte
  Fd write_end;  ///< for the program
};

/// A new terminal with the window size of `like`. Nobody's controlling terminal. Errors: kSystem.
Result<Pty> open_pty(int like);

/// Gives terminal `to` the window size of terminal `from`; does nothing if one of them is none.
void copy_window_size(int from, int to);

}  // namespace tarantella::launch
