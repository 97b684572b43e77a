#include "launch/cluster/node.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/host.h"
#include "base/network.h"
#include "launch/cluster/connection.h"
#include "launch/cluster/message.h"
#include "launch/cluster/starter.h"
#include "launch/cluster/timelines.h"
#include "launch/command.h"
#include "launch/dry_run.h"
#include "launch/environment.h"
#include "launch/guard.h"
#include "launch/job.h"
#include "launch/log_files.h"
#include "launch/orphans.h"
#include "launch/placement.h"
#include "launch/process.h"
#include "launch/record.h"
#include "launch/say.h"
#include "launch/script.h"
#include "launch/settings.h"
#include "launch/versions.h"
#include "runtime/attendance.h"
#include "runtime/door.h"
#include "timeline/memory.h"

namespace tarantella::launch {
namespace {

constexpr Duration kPatience = 30s;  // for the slowest host; the head gives up before
constexpr Duration kMeeting = 5s;
constexpr Duration kFarewell = 60s;  // for the last output of the ranks and their timelines

/// Closes the descriptors that mpiexec has leaked, and keeps that of PMI from all programs that are not given it.
int take_descriptors(const Environment& own) {
  const std::string word = stripped(own, "PMI_FD");
  int pmi = -1;
  std::from_chars(word.data(), word.data() + word.size(), pmi);
  std::vector<int> open;
  if (DIR* descriptors = ::opendir("/proc/self/fd"); descriptors != nullptr) {
    while (const dirent* found = ::readdir(descriptors)) {
      int fd = 0;
      const char* end = found->d_name + std::strlen(found->d_name);
      if (std::from_chars(found->d_name, end, fd).ptr == end && fd > STDERR_FILENO && fd != pmi)
        open.push_back(fd);
    }
    ::closedir(descriptors);
  }
  for (const int fd : open) ::close(fd);
  if (pmi > STDERR_FILENO && ::fcntl(pmi, F_SETFD, FD_CLOEXEC) == 0) return pmi;
  return -1;
}

/// How to find the head, from kNode.
struct Meeting {
  std::string secret;
  int port = 0;
  std::vector<std::string> addresses;
};

std::optional<Meeting> meeting_in(const std::string& word) {
  std::istringstream in(word);
  Meeting meeting;
  std::string addresses;
  if (!(in >> meeting.secret >> meeting.port >> addresses)) return std::nullopt;
  std::istringstream list(addresses);
  for (std::string each; std::getline(list, each, ',');) meeting.addresses.push_back(each);
  return meeting;
}

Environment as_map(const std::vector<std::string>& words) {
  Environment environment;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) environment.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return environment;
}

/// The order as this host can run it.
struct Share {
  Options options;
  Environment user;  ///< of all ranks here
  Command command;
  Placement placement;
  int node = 0, first = 0;
  std::string mark;    ///< of the processes of this job on this host
  std::string device;  ///< over which it reaches the head
};

Status refusal(const Status& status) {
  return {status.code() == Code::kInvalidArgument ? Code::kInvalidArgument : Code::kSystem,
          printable(status.message())};
}

Result<Share> prepare(const JobOrder& order, int node, const Environment& own) {
  if (node < 0 || static_cast<size_t>(node) >= order.shares.size()) {
    return Status(Code::kSystem, text("this is host ", node, " of ", order.shares.size()));
  }
  const HostShare& here = order.shares[static_cast<size_t>(node)];
  Share share;
  share.node = node;
  share.first = here.first;
  share.mark = text(order.job_id, '.', node);
  if (::chdir(order.folder.c_str()) != 0) {
    return Status(Code::kSystem, text("cannot enter the working folder '", order.folder,
                                      "': ", std::strerror(errno), "; it must be there on all hosts"));
  }
  std::vector<std::string> words{"tarantella"};
  words.insert(words.end(), order.words.begin(), order.words.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Result<Options> options = parse_options(static_cast<int>(words.size()), argv.data());
  if (!options.ok()) return options.status();
  share.options = std::move(options).value();
  share.user = as_map(order.environment);
  for (const auto& [name, value] : own) {
    if (name.starts_with("SLURM") || (name == "CUDA_VISIBLE_DEVICES" && own.contains("SLURM_PROCID"))) {
      share.user.insert_or_assign(name, value);
    }
  }
  complete(share.options, share.user);
  TNT_RETURN_IF_ERROR(check_command(share.options.script, share.options.arguments));
  share.command = order.command;
  if (!is_program(share.command.program)) {
    return Status(Code::kSystem, text("cannot run '", printable(share.command.program),
                                      "', which runs the script on other hosts; "
                                      "install the same environment at the same place on all hosts"));
  }
  share.placement = place(here.ranks, order.chosen, share.options,
                          runtime::find_gpus("/proc", value_of(share.user, "CUDA_VISIBLE_DEVICES")));
  return share;
}

std::vector<Additions> additions_of(const Share& share, const JobOrder& order, const std::string& folder,
                                    const Environment& own) {
  const HostShare& last = order.shares.back();
  std::string nodes;
  for (const HostShare& each : order.shares) nodes += text(nodes.empty() ? "" : ",", each.ranks);
  std::vector<Additions> all;
  for (int rank = 0; rank < share.placement.ranks; ++rank) {
    Additions added = additions_for(rank, share.placement, share.options, order.job_id, folder, share.user);
    added["TNT_RANK"] = std::to_string(share.first + rank);
    added["TNT_SIZE"] = std::to_string(last.first + last.ranks);
    added[kMark] = share.mark;
    if (order.shares.size() > 1) {
      added["TNT_NODES"] = nodes;
      added["TNT_TRANSPORT"] = order.transport;
      if (!share.user.contains(kDeviceVariable) && !share.device.empty())
        added[kDeviceVariable] = share.device;
    }
    for (const auto& [name, value] : own) {
      const bool is_for_leader =
          is_of_starter(name) || name.starts_with("I_MPI_") || name.starts_with("HYDRA");
      if (rank == 0 && is_for_leader) added.emplace(name, value);
    }
    all.push_back(std::move(added));
  }
  return all;
}

/// What --dry-run shows of this host.
Verdict describe(const Share& share, const JobOrder& order, const std::string& folder, const Environment& own,
                 Connection& head) {
  const std::string& host = order.shares[static_cast<size_t>(share.node)].host;
  const Versions versions = ask_python(share.command, share.user);
  if (const std::string warning = complaint(versions); !warning.empty() && share.options.shows_warnings()) {
    head.send(Message::Kind::kError, as_said(text("WARNING: host '", host, "': ", warning)));
  }
  head.send(Message::Kind::kOutput,
            text("host ", host, ": ",
                 describe_placement(share.placement, share.command, additions_of(share, order, folder, own),
                                    versions, share.first)));
  return {};
}

Result<Verdict> run_ranks(const Share& share, const JobOrder& order, const std::string& folder,
                          const Environment& own, const timeline::Memory& records, Signals& signals,
                          Connection& head, Fd pmi) {
  const runtime::Attendance attendance =
      runtime::Attendance::make(order.shares.back().first + order.shares.back().ranks);
  std::vector<std::vector<std::string>> environments;
  for (Additions& added : additions_of(share, order, folder, own)) {
    if (attendance.fd() >= 0) added[runtime::Attendance::kVariable] = std::to_string(attendance.fd());
    if (records.fd() >= 0) added[timeline::Memory::kVariable] = std::to_string(records.fd());
    environments.push_back(joined(share.user, added));
  }
  const Options& options = share.options;
  Result<LogFiles> logs =
      options.log_dir ? LogFiles::open(*options.log_dir, share.placement.ranks, share.first) : LogFiles();
  if (!logs.ok()) return logs.status();
  Record record(own, share.mark, options.script);
  Result<Guard> guard = Guard::start(share.mark, share.placement.ranks, record.path());
  if (!guard.ok()) return cannot_start("the process that guards the job", guard.status());
  const Orphans orphans;
  const JobDescription job{.placement = share.placement,
                           .options = options,
                           .command = share.command,
                           .environments = environments,
                           .logs = logs.value(),
                           .record = record,
                           .first = share.first,
                           .head = &head,
                           .is_part = order.shares.size() > 1,
                           .heeds_user_signals = order.heeds_user_signals,
                           .drops_start_lines = drops_start_lines(share.user),
                           .leader_fd = pmi.get()};
  return Job(job, signals, orphans, guard.value(), attendance).run();
}

/// Stands between mpiexec and the node launcher, its child: passes signals on, and returns the child's exit code.
int stand_in(pid_t child, const sigset_t& all) {
  for (;;) {
    siginfo_t info{};
    if (::sigwaitinfo(&all, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      ::kill(child, info.si_signo);
      continue;
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
}

/// Goes on in a child with a session of its own; the exit code for this process when the child has ended. An mpiexec
/// that loses a host kills what it has started on all others at once: the child lives on, tells the head, and ends its
/// ranks. It gets SIGHUP then.
std::optional<int> become_child() {
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child > 0) return stand_in(child, all);
  if (child == 0) {
    ::setsid();
    ::signal(SIGHUP, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, SIGHUP);
    if (::getppid() != parent) ::_exit(kLaunchError);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return std::nullopt;
}

int give_up(const std::string& why) {
  say(text("host '", host_name(), "': ", printable(why)));
  return kLaunchError;
}

/// The first message of this kind; empty if the head is gone or too slow. Later ones stay with the connection.
std::optional<Message> await(Connection& head, Message::Kind kind) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!head.closed() && !deadline.passed()) {
    head.flush(deadline);
    std::vector<Message> messages = head.wait_for_messages(deadline);
    const auto found = std::find_if(messages.begin(), messages.end(),
                                    [kind](const Message& each) { return each.kind == kind; });
    if (found == messages.end()) continue;
    Message wanted = std::move(*found);
    messages.erase(messages.begin(), found + 1);
    head.put_back(std::move(messages));
    return wanted;
  }
  return std::nullopt;
}

}  // namespace

bool is_node_launcher() { return std::getenv(kNode) != nullptr; }

int run_node() {
  Environment own = current_environment();
  Fd pmi(take_descriptors(own));
  if (const std::optional<int> code = become_child()) return *code;
  Result<Signals> signals = Signals::open();
  if (!signals.ok()) return give_up(signals.status().message());
  const std::optional<Meeting> meeting = meeting_in(own[kNode]);
  own.erase(kNode);
  if (!meeting) return give_up(text(kNode, " does not say where the job's launcher is"));
  const Deadline meet = Deadline::after(kMeeting);
  Result<Fd> socket = connect_to(meeting->addresses, meeting->port, meet);
  // among many strangers the head may have dropped this one, too
  while (socket.ok() && !runtime::knock(socket.value().get(), meeting->secret, meet)) {
    if (meet.passed()) return give_up("the job's launcher does not answer, or another program has its port");
    socket = connect_to(meeting->addresses, meeting->port, meet);
  }
  if (!socket.ok()) return give_up(socket.status().message());
  Connection head(std::move(socket).value());
  const int node = node_in(own);
  head.send(Message::Kind::kHello, content_of(Hello{TARANTELLA_VERSION, host_name(), node}));
  const std::optional<Message> job = await(head, Message::Kind::kJob);
  const std::optional<JobOrder> order = job ? order_in(*job) : std::nullopt;
  if (!order) return kLaunchError;  // the head knows why
  const std::string folder = own_folder();
  const auto refuse = [&](const Status& status, int code) {
    head.send(Message::Kind::kRefused, content_of(Verdict{.code = code, .words = refusal(status).message()}));
    head.flush(Deadline::after(kMeeting));
    return 0;
  };
  Result<Share> share = prepare(*order, node, own);
  if (share.ok()) share.value().device = device_of(head.fd());
  if (!share.ok()) {
    return refuse(share.status(), share.status().code() == Code::kInvalidArgument ? kUsageError : kCannotRun);
  }
  const OwnTimelines timelines(share.value().options, share.value().placement.ranks, share.value().first,
                               head);
  head.send(Message::Kind::kReady, content_of(share.value().placement.warnings));
  if (!await(head, Message::Kind::kGo)) return kLaunchError;
  const bool is_dry = share.value().options.action == Action::kDryRun;
  const Result<Verdict> verdict = is_dry ? describe(share.value(), *order, folder, own, head)
                                         : run_ranks(share.value(), *order, folder, own, timelines.memory(),
                                                     signals.value(), head, std::move(pmi));
  const Verdict told =
      verdict.ok()
          ? verdict.value()
          : Verdict{
                .code = kLaunchError,
                .words = as_said(text("host '", host_name(), "': ", printable(verdict.status().message())))};
  head.send(Message::Kind::kVerdict, content_of(told));
  const Deadline deadline = Deadline::after(kFarewell);
  timelines.send(deadline);
  // Until all hosts are through: MPICH's mpiexec may die of SIGPIPE when the first of several ends.
  head.part(deadline);
  return 0;
}

}  // namespace tarantella::launch
