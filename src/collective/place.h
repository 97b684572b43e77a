#pragma once
// How a rank asks another where its program is, for the warning in a long wait. Without a question it costs nothing.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/memory.h"

namespace tarantella::collective {

class Members;

/// Where a rank's program is: a thread of that rank writes it when another rank asks. In shared memory, zeroed at
/// first.
struct Place {
  transport::Word listens;  ///< 1 if there is such a thread
  transport::Word asked;    ///< counts questions
  transport::Word told;     ///< twice the number of answers; odd while one is written
  std::array<std::atomic<uint64_t>, 24> text;
};

/// Answers with `text`, truncated if it is too long. For the one thread that answers.
void tell(Place& place, std::string_view text);

/// The last answer; empty if there is none. Any thread of any rank.
std::string told(const Place& place);

/// A question to one rank. For one thread.
class Question {
 public:
  Question(Members& members, int job_rank);

  /// Whether the answer has come, or none will come.
  bool answered() const;
  /// What is known about the rank: "rank 1 is in train.py:12".
  std::string describe() const;

 private:
  const Place& place_;
  const int job_rank_;
  const uint32_t before_;
};

}  // namespace tarantella::collective
