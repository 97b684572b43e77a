#include "runtime/leader_bootstrap.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/mac.h"
#include "runtime/authenticated_listener.h"
#include "runtime/handshake.h"

namespace tarantella::runtime {
namespace {

constexpr Duration kReply = 5s;    // for an introduction, from a peer that is connected
constexpr Duration kConnect = 2s;  // for one connection
constexpr Duration kAnswer = 1s;   // from machine 0, after the deadline that both have
constexpr Duration kUnknown = 10s;
constexpr Duration kPollInterval = 200ms;
constexpr int kTries = 8;  // ports
constexpr char kOneKey[] = ", and have all machines one key (that of the home folder, or of TNT_KEY_FILE)?";

void set_option(int socket, int level, int option, int value = 1) {
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

template <typename T>
bool send_all(int socket, const T& message) {
  return ::send(socket, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

template <typename T>
bool receive_all(int socket, T& message, Deadline deadline) {
  for (size_t have = 0; have < sizeof message;) {
    pollfd readable{socket, POLLIN, 0};
    const int ready = ::poll(&readable, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::recv(socket, reinterpret_cast<char*>(&message) + have, sizeof message - have, 0);
    if (got <= 0) return false;
    have += static_cast<size_t>(got);
  }
  return true;
}

bool is_gone(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

/// Says which machines are awaited, at intervals.
class Warnings {
 public:
  explicit Warnings(const BootstrapOptions& options) : options_(options) {}

  void warn(const std::string& awaited) {
    const auto waited = Clock::now() - since_;
    if (waited < next_) return;
    next_ += options_.warn_every;
    log_warning(text("machine ", options_.node, " has waited ", static_cast<int>(in_seconds(waited)),
                     " s for ", awaited, " to join the job"));
  }

 private:
  const BootstrapOptions& options_;
  const Clock::time_point since_ = Clock::now();
  Duration next_ = options_.warn_every;
};

Fd listener_on(int port) {
  for (const int family : {AF_INET6, AF_INET}) {
    Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) continue;
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = six.sin6_port;
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR);
    const bool is_six = family == AF_INET6;
    if (is_six) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    const auto* address =
        is_six ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
    if (::bind(socket.get(), address, is_six ? sizeof six : sizeof four) == 0 &&
        ::listen(socket.get(), 1024) == 0)
      return socket;
    if (errno == EADDRINUSE) return {};
  }
  return {};
}

/// Why machine 0 does not take a leader that says this.
Status judge(const Hello& said, const BootstrapOptions& options, const std::vector<Fd>& peers) {
  TNT_RETURN_IF_ERROR(judge(said, options));
  if (peers[static_cast<size_t>(said.node) - 1].valid())
    return {Code::kMismatch, text("two machines claim to be machine ", said.node, " of job ", options.job_id,
                                  "; give each job its own name")};
  return {};
}

/// Takes a peer that knows the job's secret: a leader of another machine. Errors: those of judge().
Status take(Fd peer, const BootstrapOptions& options, std::vector<Fd>& peers) {
  Hello said{};
  // a leader that has waited too long is gone, and connects again
  if (!receive_all(peer.get(), said, Deadline::after(kReply)) || is_gone(peer.get())) return {};
  end_texts(said);
  Status status = judge(said, options, peers);
  if (!status.ok()) {
    (void)send_all(peer.get(), answer_of(status));
    return status;
  }
  peers[static_cast<size_t>(said.node) - 1] = std::move(peer);
  return {};
}

Status accept_all(AuthenticatedListener listener, const BootstrapOptions& options, std::vector<Fd>& peers,
                  Deadline deadline) {
  Warnings warnings(options);
  while (true) {
    std::string missing;
    for (size_t k = 0; k < peers.size(); ++k) {
      if (!peers[k].valid()) missing += text(missing.empty() ? "" : ", ", k + 1);
      if (peers[k].valid() && is_gone(peers[k].get()))
        return {Code::kPeerLost, text("the first rank of machine ", k + 1,
                                      " ended before all machines had joined; see its own message")};
    }
    if (missing.empty()) return {};
    warnings.warn("machine " + missing);
    if (deadline.passed())
      return {Code::kTimeout,
              text("of ", options.nodes, " machines, these did not join in time: ", missing,
                   "; did their ranks start, do they reach host '", options.host, "'", kOneKey)};
    std::vector<pollfd> entries;
    for (const int fd : listener.descriptors()) entries.push_back({fd, POLLIN, 0});
    const Deadline pause = Deadline::after(std::min(kPollInterval, deadline.left()));
    (void)::poll(entries.data(), entries.size(), pause.left_ms());
    for (Fd& peer : listener.accept()) TNT_RETURN_IF_ERROR(take(std::move(peer), options, peers));
  }
}

Result<std::vector<Fd>> host(const BootstrapOptions& options, Deadline deadline) {
  Fd listener;
  for (int attempt = 0; attempt < kTries && !listener.valid(); ++attempt)
    listener = listener_on(port_of(options.job_id, attempt));
  if (!listener.valid()) return Status::system("cannot listen for the other machines", errno);
  std::vector<Fd> peers(static_cast<size_t>(options.nodes) - 1);
  const Status status =
      accept_all(AuthenticatedListener(std::move(listener), options.job_id), options, peers, deadline);
  const Answer answer = answer_of(status);
  for (const Fd& peer : peers) {
    if (peer.valid()) (void)send_all(peer.get(), answer);
  }
  if (!status.ok()) return status;
  return peers;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) found = nullptr;
  return {found, ::freeaddrinfo};
}

/// The connection; invalid if it is refused, unset if nothing answers.
std::optional<Fd> connection_to(const addrinfo& address, int port) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Fd();
  sockaddr_storage to{};
  std::memcpy(&to, address.ai_addr, address.ai_addrlen);
  const auto number = htons(static_cast<uint16_t>(port));
  if (to.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&to)->sin6_port = number;
  if (to.ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(&to)->sin_port = number;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Fd();
    pollfd writable{socket.get(), POLLOUT, 0};
    if (::poll(&writable, 1, Deadline::after(kConnect).left_ms()) <= 0) return std::nullopt;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return Fd();
  }
  (void)::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  return socket;
}

/// A connection to machine 0 of this job, if it is there.
Fd search(const BootstrapOptions& options, const Addresses& addresses, Deadline deadline) {
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    for (int attempt = 0; attempt < kTries; ++attempt) {
      auto socket = connection_to(*each, port_of(options.job_id, attempt));
      if (deadline.passed()) return {};
      if (!socket) break;  // nor would its other ports answer
      if (socket->valid() && authenticate(socket->get(), options.job_id, Deadline::after(kReply)) &&
          send_all(socket->get(), hello_of(options)))
        return std::move(*socket);
    }
  }
  return {};
}

Result<std::vector<Fd>> join(const BootstrapOptions& options, Deadline deadline) {
  Warnings warnings(options);
  const Deadline known = Deadline::after(kUnknown);
  Fd socket;
  while (!socket.valid()) {
    const Addresses addresses = look_up(options.host);
    if (addresses == nullptr && known.passed())
      return Status(Code::kSystem,
                    text("this machine does not know host '", options.host,
                         "', where rank 0 runs; set MASTER_ADDR to a name or an address of it"));
    socket = search(options, addresses, deadline);
    if (socket.valid()) break;
    if (deadline.passed())
      return Status(Code::kTimeout, text("machine ", options.node, " found no rank 0 on host '", options.host,
                                         "' in time; did it start there, and are the ports ", kFirstPort,
                                         " to ", kFirstPort + kPorts, " open between the machines", kOneKey));
    warnings.warn(text("rank 0 on host '", options.host, "'"));
    std::this_thread::sleep_for(50ms);
  }
  Answer answer{};
  if (!receive_all(socket.get(), answer, Deadline::after(deadline.left() + kAnswer)))
    return Status(Code::kPeerLost, "rank 0 ended before all machines had joined; see its own message");
  TNT_RETURN_IF_ERROR(status_of(answer));
  std::vector<Fd> connections;
  connections.push_back(std::move(socket));
  return connections;
}

}  // namespace

int port_of(const std::string& job_id, int attempt) {
  const Tag128 tag = mac(key_of(job_id), "port");
  return kFirstPort +
         static_cast<int>((tag[0] + 256U * tag[1] + static_cast<uint64_t>(attempt) * 1009) % kPorts);
}

Result<std::vector<Fd>> bootstrap_leaders(const BootstrapOptions& options, Deadline deadline) {
  auto connected = options.node == 0 ? host(options, deadline) : join(options, deadline);
  if (connected.ok()) {
    for (const Fd& each : connected.value()) {
      set_option(each.get(), IPPROTO_TCP, TCP_NODELAY);
      // it ends within eight seconds where the machine or the network is gone, also while MPI reads from it
      set_option(each.get(), SOL_SOCKET, SO_KEEPALIVE);
      set_option(each.get(), IPPROTO_TCP, TCP_KEEPIDLE, 2);
      set_option(each.get(), IPPROTO_TCP, TCP_KEEPINTVL, 2);
      set_option(each.get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
      set_option(each.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, 8000);  // for what was sent last
    }
  }
  return connected;
}

}  // namespace tarantella::runtime
