#pragma once
// What the leaders of a job's machines send each other when they connect (leader_bootstrap.h), once each knows that the
// other has the job's secret. All is of fixed size. Pure.

#include <cstdint>

#include "base/status.h"
#include "runtime/leader_bootstrap.h"

namespace tarantella::runtime {

/// What the leader of another machine than 0 says first.
struct Hello {
  char version[32];
  uint64_t layout;
  int32_t node;
};

/// What machine 0 says at the end: ok, or the error.
struct Answer {
  int32_t code;
  char message[508];
};

Hello hello_of(const BootstrapOptions& options);
void end_texts(Hello& hello);
/// Whether machine 0 takes a leader of this job that says this. Errors: kMismatch for another version or layout, or a
/// machine that the job does not have.
Status judge(const Hello& said, const BootstrapOptions& options);

Answer answer_of(const Status& status);
/// Ends the text.
Status status_of(Answer& answer);

}  // namespace tarantella::runtime
