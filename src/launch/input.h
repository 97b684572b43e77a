#pragma once
// The launcher's standard input, and who reads it: the master inherits it, whatever it is; the other ranks
// read a file, too, each from where it stood, and find the end of the file where it is anything else. A pipe
// is not copied to them: what the launcher reads from it, nobody who comes next could read, though no rank
// may want it.

#include <sys/types.h>

#include "base/fd.h"

namespace tarantella::launch {

class Input {
 public:
  /// Looks at standard input; make it before any rank is there to read.
  Input();

  /// Standard input opened anew, at the place where it stood; invalid if it is no file that can be read.
  Fd copy() const;

  /// Standard input to watch (poll(2), POLLIN) for the first bytes that only the master will read; -1: there
  /// is nothing to watch (any more).
  int watched() const { return watched_; }
  /// Call it when there was something. Whether bytes have come; then, and where none can, it is the last time.
  bool has_come();

 private:
  bool is_file_ = false;
  off_t offset_ = 0;
  int watched_ = -1;
};

}  // namespace tarantella::launch
