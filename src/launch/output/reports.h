#pragma once
// What ranks report to the launcher through a pipe: that they fail, and with which error, while they may still run;
// that they join the job.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "runtime/report.h"

namespace tarantella::launch {

/// Written by runtime::report() and python/tarantella/_job/report.py. A record is four native 32-bit integers (rank,
/// kind, code, size) and `size` bytes of text, in one write(2) of at most PIPE_BUF bytes, which the kernel does not mix
/// with those of other ranks.
struct Report {
  using Kind = runtime::ReportKind;
  Kind kind = Kind::kNote;
  int rank = 0;
  int code = 0;
  std::string text;        ///< the error as the user should read it; may be empty
  std::string blocked_by;  ///< threads and processes of the rank that may keep it from ending; may be empty
};

/// Assembles reports from bytes of the pipe. Ignores everything from the first malformed record on. Pure.
class ReportReader {
 public:
  /// For the `ranks` ranks of the job from `first` on.
  explicit ReportReader(int ranks, int first = 0) : first_(first), ranks_(ranks) {}
  /// The reports that `data` completes.
  std::vector<Report> add(std::string_view data);

 private:
  static constexpr size_t kLongest = 4096;
  static constexpr size_t kMostText = 64 * 1024;

  const int first_, ranks_;
  bool broken_ = false;
  std::string pending_;
  std::map<int, std::string> text_;
};

/// The pipe. Every rank inherits the write end and finds it through variable().
class ReportPipe {
 public:
  /// Errors: kSystem.
  static Result<ReportPipe> open();
  int read_fd() const { return read_.get(); }
  int write_fd() const { return write_.get(); }
  void close_write() { write_ = Fd(); }
  /// "TNT_REPORT=descriptor:inode". The inode shows a process whether its descriptor of that number is this pipe.
  const std::string& variable() const { return variable_; }
  /// What can be read without blocking. Closes the read end if no process can write any more.
  std::string read_some();

 private:
  Fd read_, write_;
  std::string variable_;
};

}  // namespace tarantella::launch
