#pragma once
// How ranks ask one another where their programs are: for a line about a long wait, at no cost otherwise.

#include <string>
#include <string_view>

#include "transport/link.h"

namespace tarantella::collective {

/// For the one thread that answers: what it found, cut where it is too long.
void tell(transport::Place& place, std::string_view text);

/// What was told last; empty where nothing was. Any thread of any rank.
std::string told(const transport::Place& place);

/// A question to one rank. One thread.
class Question {
 public:
  Question(transport::Link& link, int job_rank);

  /// Whether the answer has come, or none is to be expected.
  bool answered() const;
  /// What is known of rank `job_rank`: "rank 1 is in train.py:12".
  std::string describe() const;

 private:
  const transport::Place& place_;
  const int job_rank_;
  const uint32_t before_;
};

}  // namespace tarantella::collective
