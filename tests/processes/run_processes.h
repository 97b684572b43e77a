#pragma once
// Ranks as processes of this test; a failed check ends its rank with an exit code other than 0.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "job_name.h"
#include "tarantella/tarantella.h"

namespace tarantella {

/// Ends the process: the parent shows the exit code, stderr the reason.
inline void require(bool right, const std::string& what) {
  if (right) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), tnt_last_error());
  ::_exit(1);
}

/// Starts one process per rank, which runs life(rank, context) and exits with 0.
inline std::vector<pid_t> start_processes(int size, const std::function<void(int, tnt_context*)>& life,
                                          double stuck_timeout = 60) {
  const std::string job = new_job_name();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(100);
      const tnt_options options = {rank, size, job.c_str(), 60,      stuck_timeout, 0,
                                   1,    0,    nullptr,     nullptr, nullptr};
      tnt_context* context = nullptr;
      require(tnt_context_create(&options, &context) == TNT_OK, "join");
      life(rank, context);
      tnt_context_destroy(context);
      ::_exit(0);
    }
    ranks.push_back(child);
  }
  return ranks;
}

/// Waits for the processes to end; true if each ended with 0.
inline bool all_end_well(const std::vector<pid_t>& ranks) {
  bool right = true;
  for (const pid_t rank : ranks) {
    int status = 0;
    ::waitpid(rank, &status, 0);
    right = right && status == 0;
  }
  return right;
}

inline bool run_processes(int size, const std::function<void(int, tnt_context*)>& life) {
  return all_end_well(start_processes(size, life));
}

}  // namespace tarantella
