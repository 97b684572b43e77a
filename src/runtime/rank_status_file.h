#pragma once
// Which ranks of a job join it, and which have ended, and how. The launcher writes it into a small file that all ranks
// inherit, so that no rank waits for one that cannot join any more.

#include <optional>

#include "base/fd.h"

namespace tarantella::runtime {

/// Thread-safe.
class RankStatusFile {
 public:
  /// The variable that holds the number of the file's descriptor.
  static constexpr const char* kVariable = "TNT_RANK_STATUS_FD";

  /// Without a file: nothing is known of any rank.
  RankStatusFile() = default;
  /// For a launcher: a new file for a job of `ranks` ranks, which its children inherit. Without a file if none can be
  /// created.
  static RankStatusFile make(int ranks);
  /// For a rank: the launcher's file, in which ranks are numbered from `first` on. Without a file if there is none, or
  /// only that of another job.
  static RankStatusFile inherited(int ranks, int first = 0);

  /// -1 if there is no file.
  int fd() const { return file_.get(); }
  /// Whether there is a file.
  bool exists() const { return !mapping_.bytes().empty(); }

  /// For the launcher: `rank` waits for the others to join; has ended with `code`. May be repeated.
  void set_joined(int rank) const;
  void set_ended(int rank, int code) const;
  /// Whether `rank` waits for the others, or has met them.
  bool has_joined(int rank) const { return state(rank) == kJoined; }
  /// The exit code of `rank`; empty while it runs or if that is not known. Only reads memory.
  std::optional<int> exit_code(int rank) const;

  /// All that is known of `rank` as a number, for the launchers of other hosts; 0: nothing.
  int state(int rank) const;
  void set_state(int rank, int state) const;

 private:
  struct Table;
  static constexpr int kJoined = 1;
  static constexpr int kEnded = 2;  ///< and its exit code

  Table* table() const;

  Fd file_;  ///< the launcher's
  Mapping mapping_;
  int first_ = 0;
};

}  // namespace tarantella::runtime
