#include "launch/cluster/cluster.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/cluster/head.h"
#include "launch/cluster/mpi.h"
#include "launch/cluster/starter.h"
#include "launch/cluster/timelines.h"
#include "launch/dry_run.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

int refuse(const Status& status, int otherwise) {
  say(printable(status.message()));
  return status.code() == Code::kInvalidArgument ? kUsageError : otherwise;
}

std::string one_line(const Plan& plan, const Starter& starter) {
  const HostShare& last = plan.shares.back();
  const int ranks = last.first + last.ranks;
  return text(plan.source, ": ", ranks, ranks == 1 ? " rank on " : " ranks on ", plan.shares.size(),
              plan.shares.size() == 1 ? " host" : " hosts", ", started by ", starter.why);
}

std::string joined_by(const std::vector<std::string>& words, char separator) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : std::string(1, separator)) + word;
  return all;
}

/// The seconds that `word` says, or `otherwise` if it says none: of a variable, which the ranks read, too, and refuse.
Duration seconds_in(const std::string& word, Duration otherwise) {
  char* end = nullptr;
  const double seconds = std::strtod(word.c_str(), &end);
  return word.empty() || *end != '\0' || !(seconds > 0) ? otherwise : from_seconds(seconds);
}

}  // namespace

int launch_on_hosts(const Plan& plan, const Options& options, const Command& command, const Environment& user,
                    const std::string& folder) {
  const Result<Mpi> mpi = choose_mpi(find_mpis(user, folder), stripped(user, "TNT_TRANSPORT"));
  if (!mpi.ok()) return refuse(mpi.status(), kUsageError);
  std::vector<std::string> hosts;
  for (const HostShare& share : plan.shares) hosts.push_back(share.host);
  const std::vector<std::string> addresses = own_addresses(hosts);
  const Starter starter = starter_for(plan, mpi.value(), folder + "/tarantella", addresses[0], user);
  if (options.shows_information()) say("INFO: " + one_line(plan, starter));
  if (options.action == Action::kDryRun) {
    const std::string lines =
        text("starter: ", starter.why, "\ntransport: ", mpi.value().transport(),
             "\ncommand: ", shell_assignments(starter.variables), shell_quoted(starter.command.words), '\n');
    if (std::fputs(lines.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return kLaunchError;
  }
  Result<Signals> signals = Signals::open();
  Result<Listener> listener = Listener::open();
  const Result<std::string> job_id = new_job_id(), secret = new_job_id();
  for (const Status& status : {signals.status(), listener.status(), job_id.status(), secret.status()}) {
    if (!status.ok()) return refuse(status, kLaunchError);
  }
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error) return refuse({Code::kSystem, "the working folder is gone: " + error.message()}, kLaunchError);

  Environment environment = user;
  forget_mpi(environment);
  const JobOrder order{.job_id = job_id.value(),
                       .transport = mpi.value().transport(),
                       .folder = here,
                       .command = command,
                       .heeds_user_signals = starter.is_srun,
                       .chosen = plan.chosen,
                       .shares = plan.shares,
                       .words = options.words,
                       .environment = joined(environment, {})};
  Additions added = starter.variables;
  added.emplace(kNode, text(secret.value(), ' ', listener.value().port, ' ', joined_by(addresses, ',')));
  const std::vector<std::string> of_starter = joined(environment, added);
  const Orphans orphans;
  AllTimelines timelines(options, order.shares);
  const ClusterJob job{.options = options,
                       .starter = starter,
                       .order = order,
                       .secret = secret.value(),
                       .environment = of_starter,
                       .timelines = timelines,
                       .silence = seconds_in(stripped(user, "TNT_TIMEOUT"), 300s),
                       .start_timeout = seconds_in(options.start_timeout.value_or(""), 60s)};
  const Verdict verdict = Head(job, std::move(listener).value(), signals.value(), orphans).run();
  if (verdict.signal != 0) die_of(verdict.signal);
  return verdict.code;
}

int list_mpis() {
  const Environment user = current_environment();
  const std::vector<Mpi> found = find_mpis(user, own_folder());
  std::string lines;
  for (const Mpi& mpi : found) {
    lines += text(mpi.name(), '\t', mpi.mpiexec, '\t', mpi.library, '\t', mpi.where, '\n');
  }
  const Result<Mpi> chosen = choose_mpi(found, stripped(user, "TNT_TRANSPORT"));
  lines += chosen.ok() ? text("use\t", chosen.value().name(), '\t', chosen.value().where, '\n')
                       : text("none\t", printable(chosen.status().message()), '\n');
  return std::fputs(lines.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : kLaunchError;
}

}  // namespace tarantella::launch
