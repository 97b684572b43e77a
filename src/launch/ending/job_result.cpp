#include "launch/ending/job_result.h"

#include <cerrno>
#include <system_error>

#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// The error of the rank that failed first; empty if the user has seen it.
std::string error_of(const RankExit& cause, const EndedJob& job) {
  const Failures& failures = job.failures;
  if (const Report* lost = failures.find(cause.rank, Report::Kind::kLost); lost != nullptr) return lost->text;
  const bool shown = cause.rank == 0 || job.shows_all_errors || failures.same_error(0, cause.rank);
  if (shown) return "";
  const Report* failed = failures.find(cause.rank, Report::Kind::kFailed);
  if (failed != nullptr && !failed->text.empty()) return failed->text;
  return job.shutdown.root_cause().rank_0_showed_own_error() ? "" : job.stderr_excerpt(cause.rank);
}

JobResult result_of_failure(const RankExit& cause, const EndedJob& job) {
  std::string message = error_of(cause, job);
  if (cause.rank != 0 && job.stderr_excerpt(cause.rank).ends_with("EOFError: EOF when reading a line\n")) {
    message += message_line(
        "only rank 0 reads stdin if it is a terminal or a pipe; redirect a file (< file) for all ranks to "
        "read it");
  }
  if (const auto early = job.shutdown.root_cause().exited_early())
    message += message_line(text("rank ", early->rank, " (pid ", early->pid, " on ", job.host,
                                 ") ended with exit code 0 while other ranks waited for it"));
  const Report* report = job.failures.find(cause.rank, Report::Kind::kFailed);
  message += message_line(
      describe(cause, {.host = job.host,
                       .same_error = job.failures.others_with_same_error(cause.rank),
                       .stopped_others = job.has_ranks_elsewhere || job.shutdown.stopped_others(),
                       .blocked_by = report == nullptr ? "" : report->blocked_by}));
  const int code = cause.status.code();
  // kPeerFailed: every rank that failed did so because of one that is not among them, as a rule a rank without a sign
  // of life, which the launcher has killed.
  const bool was_killed = cause.status.by_signal || code == kPeerFailed;
  return {.code = code,
          .message = std::move(message),
          .failure = code == kPreempted && !was_killed ? FailureKind::kNone
                     : was_killed                      ? FailureKind::kKilled
                                                       : FailureKind::kException,
          .cause = was_killed ? text("rank ", cause.rank, " exit code ", code) : text("exit code ", code)};
}

}  // namespace

JobResult interrupted(int number) {
  return {.code = 128 + number,
          .signal = number,
          .message = message_line(text("stopped by signal ", signal_name(number)))};
}

JobResult result_of(const EndedJob& job) {
  if (!job.start_error.ok())
    return {.code = kLaunchError, .message = message_line(job.start_error.message())};
  if (job.exec_failure) {
    const int error = job.exec_failure->error;
    std::string reason = std::generic_category().message(error);
    if (error == ENOENT) reason += " (does its first line, #!, name a program that is not there?)";
    const std::string line = text("cannot run '", printable(job.program), "': ", reason);
    return {.code = kCannotRun, .message = message_line(line)};
  }
  const Shutdown& shutdown = job.shutdown;
  if (const int number = shutdown.interrupted_by(); number != 0 && !shutdown.has_failure_beside_signal()) {
    if (!shutdown.have_saved()) return interrupted(number);
    const std::string line =
        text("stopped by signal ", signal_name(number), ", after all ranks saved their work");
    return {.code = kPreempted, .message = message_line(line)};
  }
  return shutdown.root_cause().failed() ? result_of_failure(shutdown.root_cause().cause(), job) : JobResult();
}

}  // namespace tarantella::launch
