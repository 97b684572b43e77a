#pragma once
// The launcher's standard input, and which ranks read it. Rank 0 inherits it. If it is a file, every other rank
// reads the file, too, from the same position; if not, the other ranks find the end of the file. The launcher does not
// copy a pipe to the ranks: what it reads is lost for programs that read the pipe later, even if no rank wants it.

#include <sys/types.h>

#include "base/fd.h"

namespace tarantella::launch {

class Input {
 public:
  /// Looks at standard input. Make it before any rank is started.
  Input();

  /// A new descriptor of standard input, at the position that it had first; invalid if it is not a readable file.
  Fd reopen() const;

  /// The descriptor to watch with poll(2) for POLLIN, if standard input is a pipe or a socket: only rank 0 will read
  /// its bytes, so the user is warned of the first ones. -1: it is neither, or the watch has ended.
  int watched() const { return watched_; }
  /// Call it when poll(2) has reported an event. Returns whether there are bytes. Ends the watch if so, or if none can
  /// come.
  bool has_data();
  /// Whether it is a file from which nobody has read yet. A shell loop, `while read`, around this program has read from
  /// its file.
  bool is_redirected() const;

 private:
  bool is_file_ = false;
  off_t offset_ = 0;
  int watched_ = -1;
};

}  // namespace tarantella::launch
