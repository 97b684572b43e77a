#pragma once
// How ranks ask one another where their programs are: for a line about a long wait, at no cost otherwise.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/memory.h"

namespace tarantella::collective {

class Members;

/// Where a rank's program is, told by a thread of its own when another rank asks. Lies in shared memory, zeroed at
/// first.
struct Place {
  transport::Word listens;  ///< 1 where there is such a thread
  transport::Word asked;    ///< counts questions
  transport::Word told;     ///< counts answers, by two: odd while one is written
  std::array<std::atomic<uint64_t>, 24> text;
};

/// For the one thread that answers: what it found, cut where it is too long.
void tell(Place& place, std::string_view text);

/// What was told last; empty where nothing was. Any thread of any rank.
std::string told(const Place& place);

/// A question to one rank. One thread.
class Question {
 public:
  Question(Members& members, int job_rank);

  /// Whether the answer has come, or none is to be expected.
  bool answered() const;
  /// What is known of rank `job_rank`: "rank 1 is in train.py:12".
  std::string describe() const;

 private:
  const Place& place_;
  const int job_rank_;
  const uint32_t before_;
};

}  // namespace tarantella::collective
