#pragma once
// How a rank asks another where its program is, for the warning in a long wait. Without a question it costs nothing.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/node_memory.h"

namespace tarantella::collective {

class RankTable;

/// Where a rank's program is: a thread of that rank writes it when another rank asks. In shared memory, zeroed at
/// first.
struct SourceLocation {
  transport::Word listens;  ///< 1 if there is such a thread
  transport::Word asked;    ///< counts questions
  transport::Word told;     ///< twice the number of answers; odd while one is written
  std::array<std::atomic<uint64_t>, 24> text;
};

/// Answers with `text`, truncated if it is too long. For the one thread that answers.
void report_location(SourceLocation& location, std::string_view text);

/// The last answer; empty if there is none. Any thread of any rank.
std::string reported_location(const SourceLocation& location);

/// Answers the questions to this rank. Thread-safe, except that one thread awaits and answers.
class SourceLocationListener {
 public:
  /// `table` must outlive it.
  explicit SourceLocationListener(RankTable& table) : table_(table) {}

  /// Blocks until another rank asks where this rank's program is, that is until the number of questions differs from
  /// `seen`, which is set to that number. Errors: kPeerLost after close().
  Status await(uint32_t& seen);
  /// `place` is a position in the program, such as "train.py:12".
  void answer(const std::string& place);
  /// Ends await(), now and from here on. Does not block.
  void close();

 private:
  RankTable& table_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> listens_{false};  ///< a thread is in await()
};

/// A question to one rank. For one thread.
class SourceLocationQuery {
 public:
  SourceLocationQuery(RankTable& rank_table, int job_rank);

  /// Whether the answer has come, or none will come.
  bool answered() const;
  /// What is known about the rank: "rank 1 is in train.py:12".
  std::string describe() const;

 private:
  const SourceLocation& location_;
  const int job_rank_;
  const uint32_t before_;
};

}  // namespace tarantella::collective
