#include "launch/cluster/head.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <utility>

#include "launch/cluster/starter_words.h"
#include "launch/poller.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

constexpr char kNoInput[] =
    "WARNING: no rank of a job on several hosts reads stdin; open a file by its name, or redirect < "
    "/dev/null";
constexpr Duration kLook = 500ms;  // how often connections are checked
constexpr Duration kWarnOfStart = 5s;
constexpr Duration kEndWithin = 20s;  // after kEnd: longer than a node launcher waits for a stuck process
constexpr Duration kGather = 60s;     // for the timelines of all hosts
constexpr Duration kGatherHurried = 10s;
constexpr Duration kLastWords = 300ms;  // of the starter and its remote shells, which may end later
constexpr Duration kStarterEnds = 3s;   // after the last node launcher
constexpr Duration kDies = 5s;          // after SIGKILL; one that waits for a dead disk does not

}  // namespace

Head::Head(const ClusterJob& job, Listener listener, Signals& signals, const Orphans& orphans)
    : job_(job),
      door_(std::in_place, std::move(listener.socket), job.secret),
      signals_(signals),
      orphans_(orphans),
      nodes_(job.order.shares.size()),
      states_(static_cast<size_t>(job.order.shares.back().first + job.order.shares.back().ranks)),
      stdout_(STDOUT_FILENO),
      stderr_(STDERR_FILENO) {}

Verdict Head::run() {
  if (const Status status = start(); !status.ok()) {
    say(status.message());
    return {.code = kCannotRun};
  }
  deadline_ = Deadline::after(job_.start_timeout);
  warn_of_start_ = Deadline::after(kWarnOfStart);
  for (advance(); !all_over(); advance()) wait();
  gather();
  for (Node& node : nodes_) {
    if (node.connection) node.connection->flush(Deadline::after(1s));
    node.connection.reset();
  }
  end_starter();
  Verdict verdict = start_failure_ ? *start_failure_ : endings_.verdict(interrupted_by_);
  if (endings_.has_lost()) stderr_.put(said_by_starter(starter_said_.last_words()));
  stderr_.put(verdict.words);
  write_rest();
  verdict.code = code_with_output(verdict.code, stdout_.error());
  if (running_) job_.timelines.write();
  return verdict;
}

Status Head::start() {
  null_ = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request;
  request.command = &job_.starter.command;
  request.environment = &job_.environment;
  request.inherited = &signals_.inherited();
  request.in = Stream::kDrop;  // what an MPI does with it, and with what nobody reads, differs
  request.out = Stream::kPipe;
  request.err = Stream::kPipe;
  request.null_fd = null_.get();
  Result<Process> process = Process::spawn(request);
  if (!process.ok()) return process.status();
  starter_ = std::move(process).value();
  if (input_.is_redirected() && job_.options.shows_warnings()) stderr_.put(as_said(kNoInput));
  return {};
}

void Head::wait() {
  Poller poller;
  poller.add(signals_.fd(), POLLIN, [this] {
    while (const auto event = signals_.next()) handle_signal(*event);
  });
  if (job_.options.shows_warnings()) {
    poller.add(input_.watched(), POLLIN, [this] {
      if (input_.has_come()) stderr_.put(as_said(kNoInput));
    });
  }
  poller.add(starter_.out(), POLLIN, [this] { drain_starter(); });
  poller.add(starter_.err(), POLLIN, [this] { drain_starter(); });
  if (!starter_exit_) poller.add(starter_.pidfd(), POLLIN);
  if (door_) {
    for (const int fd : door_->descriptors()) poller.add(fd, POLLIN);
  }
  for (size_t index = 0; index < guests_.size(); ++index) {
    guests_[index].watch(poller, [this, index] { greet(index); });
  }
  const bool deaf = is_deaf();
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].connection) nodes_[node].connection->watch(poller, [this, node] { hear(node); }, deaf);
  }
  if (!stdout_.idle()) poller.add(stdout_.fd(), POLLOUT, [this] { stdout_.write_some(); });
  if (!stderr_.idle()) poller.add(stderr_.fd(), POLLOUT, [this] { stderr_.write_some(); });
  const auto look = static_cast<int>(kLook / 1ms);
  if (poller.wait(look)) poller.handle();
  std::erase_if(guests_, [](const Connection& each) { return each.closed(); });
  if (door_) {
    for (Fd& socket : door_->admit()) guests_.emplace_back(std::move(socket));
  }
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].connection) continue;
    nodes_[node].connection->check();
    if (nodes_[node].connection->closed())
      lose(node, "the machine, the network or the launcher there has failed");
  }
  judge_silence();
  look_at_starter();
}

void Head::judge_silence() {
  const auto now = Clock::now();
  const bool hears = now - std::exchange(looked_at_, now) <= 2 * kLook && !is_deaf();
  for (size_t index = 0; index < nodes_.size(); ++index) {
    Node& node = nodes_[index];
    if (!hears) node.heard_at = now;
    const auto silent = now - node.heard_at;
    const Duration limit = endings_.failed() ? Connection::kSilence : job_.silence;
    if (running_ && !node.over && silent > limit)
      lose(index,
           text("it has not answered for ", std::chrono::duration_cast<std::chrono::seconds>(silent).count(),
                " s; it is paused, stopped or swapping"));
  }
}

void Head::greet(size_t index) {
  Connection& guest = guests_[index];
  const std::vector<Message> messages = guest.read();
  if (messages.empty()) return;
  const std::optional<Hello> hello = hello_in(messages[0]);
  if (!hello) return guest.close();
  const auto node = static_cast<size_t>(hello->node);
  if (hello->node < 0 || node >= nodes_.size() || nodes_[node].connection) {
    guest.close();
    return fail_start(text("'", printable(hello->host), "' says that it is host ", hello->node, " of ",
                           nodes_.size(), ": the MPI that started it is another than the launcher's"),
                      kLaunchError);
  }
  if (hello->version != TARANTELLA_VERSION) {
    return fail_start(
        text("host '", job_.order.shares[node].host, "' has tarantella ", printable(hello->version),
             ", but this one is ", TARANTELLA_VERSION, "; install the same version on all hosts"),
        kLaunchError);
  }
  nodes_[node].connection = std::make_unique<Connection>(std::move(guest));
  nodes_[node].connection->send(Message::Kind::kJob, content_of(job_.order));
}

void Head::hear(size_t node) {
  nodes_[node].heard_at = Clock::now();
  for (const Message& message : nodes_[node].connection->read()) take(node, message);
}

void Head::take(size_t node, const Message& message) {
  Node& from = nodes_[node];
  const std::string& host = job_.order.shares[node].host;
  switch (message.kind) {
    case Message::Kind::kReady:
      if (auto warnings = warnings_in(message)) {
        from.ready = true;
        from.warnings = *std::move(warnings);
      } else {
        fail_start(text("host '", host, "' speaks another protocol; ",
                        "install the same version of tarantella on all hosts"),
                   kLaunchError);
      }
      return;
    case Message::Kind::kRefused:
      if (const auto refusal = verdict_in(message)) {
        fail_start(text("host '", host, "': ", refusal->words), refusal->code);
      }
      return;
    case Message::Kind::kOutput:
      return stdout_.put(message.content);
    case Message::Kind::kError:
      return stderr_.put(message.content);
    case Message::Kind::kAttendance:
      if (const auto states = states_in(message);
          states && states->size() == static_cast<size_t>(job_.order.shares[node].ranks)) {
        std::copy(states->begin(), states->end(), states_.begin() + job_.order.shares[node].first);
        states_changed_ = true;
      }
      return;
    case Message::Kind::kVerdict:
      if (const auto verdict = verdict_in(message); verdict && !from.over) {
        from.over = true;
        from.sends_records = true;
        endings_.ended(static_cast<int>(node), *verdict, Clock::now());
      }
      return;
    case Message::Kind::kAskTime:
      if (const auto question = time_in(message)) {
        from.connection->send(Message::Kind::kTime, content_of(Time{question->question, timeline::now()}));
      }
      return;
    case Message::Kind::kClock:
    case Message::Kind::kRecords:
    case Message::Kind::kRecorded:
      return job_.timelines.take(node, message);
    default:
      return;  // only a head sends them
  }
}

void Head::lose(size_t node, const std::string& why) {
  nodes_[node].connection.reset();
  if (std::exchange(nodes_[node].over, true)) return;
  const HostShare& share = job_.order.shares[node];
  if (!running_) {
    return fail_start(
        text("host '", share.host, "' was lost while the job started; ", telling(starter_said_.last_words())),
        kLaunchError);
  }
  const std::string ranks = share.ranks == 1
                                ? text("rank ", share.first)
                                : text("ranks ", share.first, "-", share.first + share.ranks - 1);
  endings_.lost(
      static_cast<int>(node),
      text("lost host '", share.host, "' with ", ranks, ": ", why, "; the other ranks were stopped"),
      Clock::now());
}

void Head::drain_starter() {
  char buffer[4096];
  for (const bool is_err : {false, true}) {
    const int fd = is_err ? starter_.err() : starter_.out();
    if (fd < 0) continue;
    const ssize_t bytes = ::read(fd, buffer, sizeof buffer);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (bytes <= 0) {
      is_err ? starter_.close_err() : starter_.close_out();
      continue;
    }
    starter_said_.append({buffer, static_cast<size_t>(bytes)});
    if (const std::string missing = missing_program(starter_said_.last_words());
        !running_ && !missing.empty()) {
      fail_start(missing, kCannotRun);
    }
    if (job_.options.log_level == "DEBUG") stderr_.put({buffer, static_cast<size_t>(bytes)});
  }
}

void Head::look_at_starter() {
  if (starter_exit_) return;
  starter_exit_ = starter_.ended();
  if (!starter_exit_) return;
  const Exit exit = *starter_exit_;
  const std::string& program = job_.starter.command.words[0];
  const Deadline rest = Deadline::after(kLastWords);
  while ((starter_.out() >= 0 || starter_.err() >= 0) && !rest.passed()) {
    pollfd fds[] = {{starter_.out(), POLLIN, 0}, {starter_.err(), POLLIN, 0}};
    (void)::poll(fds, 2, rest.left_ms());
    drain_starter();
  }
  if (!running_ && !start_failure_) {
    const std::string said = telling(starter_said_.last_words());
    return fail_start(text("cannot start ", silent_hosts(), " with ", program, ": ",
                           said.empty() ? text("it ended with exit code ", exit.code()) : said),
                      kLaunchError);
  }
  if (exit.by_signal && running_ && !all_over()) {
    endings_.lost(
        -1,
        text(program, " (pid ", starter_.pid(), "), which connects the hosts, was killed by signal ",
             signal_name(exit.value), "; the ranks were stopped"),
        Clock::now());
  }
}

void Head::handle_signal(const Signals::Event& event) {
  if (event.number == SIGCHLD) return;
  if (event.number == SIGTSTP) return suspend();
  const bool is_of_user = event.number == SIGUSR1 || event.number == SIGUSR2;
  if (gathers_) {
    gathers_ = is_of_user;
    return;
  }
  if (running_) tell_all(Message::Kind::kSignal, content_of(event));
  if (is_of_user) return;
  if (interrupted_by_ == 0) interrupted_by_ = event.number;
  if (!running_ && !start_failure_) {
    start_failure_ = endings_.verdict(interrupted_by_);
    for (Node& node : nodes_) node.over = true;
  }
}

void Head::suspend() {
  const auto tell = [this](int number) {
    tell_all(Message::Kind::kSignal, content_of(Signals::Event{number}));
    for (Node& node : nodes_) {
      if (node.connection) node.connection->flush(Deadline::after(1s));
    }
  };
  tell(SIGTSTP);
  stop_until_resumed();
  tell(SIGCONT);
}

void Head::fail_start(const std::string& why, int code) {
  if (!start_failure_) start_failure_ = Verdict{.code = code, .words = as_said(why)};
  for (Node& node : nodes_) node.over = true;
}

void Head::advance() {
  if (!running_ && !start_failure_ && all_ready()) {
    running_ = true;
    deadline_.reset();
    guests_.clear();
    door_.reset();
    print_warnings();
    tell_all(Message::Kind::kGo);
  }
  if (!running_ && !start_failure_ && warn_of_start_ && warn_of_start_->passed()) {
    warn_of_start_.reset();
    if (job_.options.shows_warnings())
      stderr_.put(as_said(text("WARNING: still waiting for ", silent_hosts(), " to start, for up to ",
                               in_seconds(job_.start_timeout), " s (--start-timeout)")));
  }
  if (!running_ && deadline_ && deadline_->passed() && !start_failure_) {
    const std::string said = telling(starter_said_.last_words());
    fail_start(text(silent_hosts(), " did not answer within ", in_seconds(job_.start_timeout), " s",
                    said.empty() ? "; try ssh to it, or raise the limit (--start-timeout)" : ": " + said),
               kLaunchError);
  }
  if (running_) tell_attendance();
  if (running_ && endings_.failed() && !told_to_end_ && interrupted_by_ == 0 &&
      Clock::now() >= endings_.end_others_at()) {
    told_to_end_ = true;
    deadline_ = Deadline::after(kEndWithin);
    tell_all(Message::Kind::kEnd);
  }
  if (running_ && deadline_ && deadline_->passed()) {
    for (Node& node : nodes_) node.over = true;
  }
}

void Head::print_warnings() {
  if (!job_.options.shows_warnings()) return;
  std::map<std::string, std::vector<Host>> hosts;  // that warn of the same
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (const std::string& warning : nodes_[node].warnings) {
      hosts[warning].push_back({job_.order.shares[node].host, {}});
    }
  }
  for (const auto& [warning, which] : hosts) {
    const char* noun = which.size() == 1 ? "host " : "hosts ";
    stderr_.put(as_said(text("WARNING: ", noun, listed(which), ": ", printable(warning))));
  }
}

void Head::tell_attendance() {
  // at once when all have joined: they wait for it
  const bool waits = std::find(states_.begin(), states_.end(), 0) != states_.end();
  if (!states_changed_ || (waits && Clock::now() - states_told_ < kLook)) return;
  states_changed_ = false;
  states_told_ = Clock::now();
  tell_all(Message::Kind::kAttendance, content_of(states_));
}

void Head::gather() {
  if (!running_) return;
  const Deadline deadline = Deadline::after(interrupted_by_ != 0 ? kGatherHurried : kGather);
  const auto is_awaited = [this](const Node& node) {
    const auto index = static_cast<size_t>(&node - nodes_.data());
    return node.connection && node.sends_records && !job_.timelines.complete(index);
  };
  gathers_ = true;
  while (gathers_ && !deadline.passed() && std::any_of(nodes_.begin(), nodes_.end(), is_awaited)) wait();
  gathers_ = false;
}

void Head::tell_all(Message::Kind kind, const std::string& content) {
  for (Node& node : nodes_) {
    if (node.connection && !node.over) node.connection->send(kind, content);
  }
}

bool Head::all_ready() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.ready; });
}

bool Head::all_over() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.over; });
}

bool Head::is_deaf() const { return !gathers_ && (stdout_.full() || stderr_.full()); }

std::string Head::silent_hosts() const {
  const bool all_came =
      std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.connection != nullptr; });
  std::vector<Host> silent;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    const bool answers = all_came ? nodes_[node].ready : nodes_[node].connection != nullptr;
    if (!answers) silent.push_back({job_.order.shares[node].host, {}});
  }
  return text(silent.size() == 1 ? "host " : "hosts ", silent.empty() ? "of the job" : listed(silent));
}

void Head::end_starter() {
  const bool hopeless = start_failure_ || endings_.has_lost();  // it waits for a host that does not answer
  const Deadline deadline = Deadline::after(hopeless ? Duration::zero() : Duration(kStarterEnds));
  while (!starter_exit_ && !deadline.passed()) {
    pollfd fds[] = {{starter_.pidfd(), POLLIN, 0}, {starter_.out(), POLLIN, 0}, {starter_.err(), POLLIN, 0}};
    ::poll(fds, 3, std::min(100, deadline.left_ms()));
    drain_starter();
    starter_exit_ = starter_.ended();
  }
  if (!starter_exit_) starter_.signal(SIGKILL);
  const Deadline dies = Deadline::after(kDies);
  while (!starter_.ended() && !dies.passed()) ::usleep(1000);
  starter_.collect();
  const Deadline patience = Deadline::after(
      start_failure_ ? Duration(200ms) : 2s);  // remote shells end with what they have started
  while (!orphans_.in_group(0, {}).empty() && !patience.passed()) ::usleep(5000);
  const Deadline killed = Deadline::after(1s);
  while (orphans_.sweep({}) > 0 && !killed.passed()) ::usleep(1000);
}

void Head::write_rest() {
  while (!stdout_.idle() || !stderr_.idle()) {
    Poller poller;
    poller.add(signals_.fd(), POLLIN);
    if (!stdout_.idle()) poller.add(stdout_.fd(), POLLOUT, [this] { stdout_.write_some(); });
    if (!stderr_.idle()) poller.add(stderr_.fd(), POLLOUT, [this] { stderr_.write_some(); });
    if (!poller.wait(interrupted_by_ != 0 ? 2000 : 10 * 60 * 1000)) return;
    poller.handle();
    if (const auto event = signals_.next(); event && event->number != SIGCHLD) return;
  }
}

}  // namespace tarantella::launch
