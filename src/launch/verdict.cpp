#include "launch/verdict.h"

#include <cerrno>
#include <system_error>

#include "launch/say.h"

namespace tarantella::launch {
namespace {

/// The error of the rank that failed first; empty if the user has seen it.
std::string error_of(const FirstCause::Ending& cause, const Evidence& evidence) {
  const Failures& failures = evidence.failures;
  if (const Report* lost = failures.find(cause.rank, Report::Kind::kLost); lost != nullptr) return lost->text;
  const bool shown = cause.rank == 0 || evidence.shows_all_errors || failures.same(0, cause.rank);
  if (shown) return "";
  const Report* failed = failures.find(cause.rank, Report::Kind::kFailed);
  if (failed != nullptr && !failed->text.empty()) return failed->text;
  return evidence.shutdown.first_cause().master_spoke() ? "" : evidence.last_words(cause.rank);
}

Verdict blame(const FirstCause::Ending& cause, const Evidence& evidence) {
  std::string words = error_of(cause, evidence);
  if (cause.rank != 0 && evidence.last_words(cause.rank).ends_with("EOFError: EOF when reading a line\n")) {
    words += as_said(
        "only rank 0 reads stdin if it is a terminal or a pipe; redirect a file (< file) for all ranks to "
        "read it");
  }
  if (const auto left = evidence.shutdown.first_cause().left_early())
    words += as_said(text("rank ", left->rank, " (pid ", left->pid, " on ", evidence.host,
                          ") ended with exit code 0 while other ranks waited for it"));
  const Report* report = evidence.failures.find(cause.rank, Report::Kind::kFailed);
  words += as_said(describe(cause, {.host = evidence.host,
                                    .same_error = evidence.failures.more(cause.rank),
                                    .stopped_others = evidence.is_part || evidence.shutdown.stopped_others(),
                                    .held_by = report == nullptr ? "" : report->held_by}));
  return {.code = cause.exit.code(), .words = std::move(words)};
}

}  // namespace

Verdict verdict_on(const Evidence& evidence) {
  if (!evidence.start_error.ok())
    return {.code = kLaunchError, .words = as_said(evidence.start_error.message())};
  if (evidence.exec_failure) {
    const int error = evidence.exec_failure->error;
    std::string reason = std::generic_category().message(error);
    if (error == ENOENT) reason += " (does its first line, #!, name a program that is not there?)";
    const std::string line = text("cannot run '", printable(evidence.program), "': ", reason);
    return {.code = kCannotRun, .words = as_said(line)};
  }
  const Shutdown& shutdown = evidence.shutdown;
  if (const int number = shutdown.interrupted_by(); number != 0 && !shutdown.blames_a_rank()) {
    return {.code = 128 + number,
            .signal = number,
            .words = as_said(text("stopped by signal ", signal_name(number)))};
  }
  return shutdown.first_cause().failed() ? blame(shutdown.first_cause().cause(), evidence) : Verdict();
}

int code_with_output(int code, int error) {
  if (error == 0 || error == EPIPE) return code;
  say("cannot write to stdout what the ranks have printed: " + std::generic_category().message(error));
  return code == 0 ? kLaunchError : code;
}

}  // namespace tarantella::launch
