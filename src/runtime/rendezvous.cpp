#include "runtime/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "base/fixed_text.h"
#include "base/mac.h"
#include "runtime/join_wait.h"
#include "runtime/memory.h"

namespace tarantella::runtime {
namespace {

constexpr Duration kHelloTimeout = 5s;
constexpr Duration kPollInterval = 100ms;  // of a wait, after which the awaited ranks are checked
constexpr size_t kMaxJobName = 64;

/// The introduction of a rank. Fixed size, so that a foreign peer cannot make us read more.
struct Hello {
  char version[32];
  int32_t rank;
  int32_t size;
};

/// The answer: ok with the memory file attached, or the error.
struct Answer {
  int32_t code;
  char message[508];
};

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address address_of(const std::string& job) {
  Address address;
  address.name.sun_family = AF_UNIX;
  // everybody sees it in /proc/net/unix, but only who knows the job can make it
  const std::string path = text("tarantella-", hex(mac(key_of(job), text("meeting of user ", ::getuid()))));
  std::memcpy(address.name.sun_path + 1, path.data(), path.size());  // leading NUL: abstract, no file
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return address;
}

Hello hello_of(int rank, int size) {
  Hello hello{};
  write_text(TARANTELLA_VERSION, hello.version);
  hello.rank = rank;
  hello.size = size;
  return hello;
}

/// The user of the process at the other end, if the kernel tells.
std::optional<uid_t> user_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer.uid;
}

Status belongs_to_another(const std::string& job, uid_t user) {
  return {Code::kSystem, text("a process of user ", user, " already uses the rendezvous socket of job ", job,
                              " on this machine; choose another TNT_JOB_ID")};
}

bool wait_readable(int socket, Deadline deadline) {
  pollfd entry{socket, POLLIN, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, deadline.left_ms());
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

/// The socket keeps message boundaries, so one recv is one Hello.
Result<Hello> read_hello(int socket, Deadline deadline) {
  Hello hello{};
  if (!wait_readable(socket, deadline)) return Status(Code::kTimeout, "a peer connected and sent nothing");
  const ssize_t got = ::recv(socket, &hello, sizeof(hello), 0);
  if (got != static_cast<ssize_t>(sizeof(hello)))
    return Status(Code::kMismatch, "a peer used another protocol");
  hello.version[sizeof(hello.version) - 1] = '\0';
  return hello;
}

void send_answer(int socket, const Status& status, int memory) {
  Answer answer{};
  answer.code = static_cast<int32_t>(status.code());
  write_text(status.message(), answer.message);
  iovec part{&answer, sizeof(answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (status.ok()) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
  }
  ::sendmsg(socket, &message, MSG_NOSIGNAL);  // a peer that is gone is detected elsewhere
}

Result<Fd> receive_answer(int socket, Deadline deadline) {
  if (!wait_readable(socket, deadline))
    return Status(Code::kTimeout,
                  "not all ranks joined in time; did they start, and with the same TNT_JOB_ID?");
  Answer answer{};
  iovec part{&answer, sizeof(answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno != ECONNRESET) return Status::system("recvmsg from rank 0", errno);
  if (got != static_cast<ssize_t>(sizeof(answer))) {
    return Status(Code::kPeerLost, "rank 0 ended before all ranks had joined; see its own message");
  }
  answer.message[sizeof(answer.message) - 1] = '\0';
  if (answer.code != 0) return Status(static_cast<Code>(answer.code), answer.message);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return Status(Code::kSystem, "rank 0 sent no memory file; is the limit of open files reached?");
  }
  int memory = -1;
  std::memcpy(&memory, CMSG_DATA(header), sizeof(int));
  return Fd(memory);
}

std::vector<int> missing_ranks(const std::vector<Fd>& peers) {
  std::vector<int> missing;
  for (size_t rank = 1; rank < peers.size(); ++rank) {
    if (!peers[rank].valid()) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

/// A rank that had joined and whose process is gone or has given up; 0 if there is none.
int gone_rank(const std::vector<Fd>& peers) {
  std::vector<pollfd> entries;
  for (const Fd& peer : peers) entries.push_back({peer.get(), 0, 0});  // poll ignores negative descriptors
  if (::poll(entries.data(), entries.size(), 0) <= 0) return 0;
  const auto gone = std::find_if(entries.begin(), entries.end(),
                                 [](const pollfd& entry) { return (entry.revents & POLLHUP) != 0; });
  return gone == entries.end() ? 0 : static_cast<int>(gone - entries.begin());
}

/// Accepts ranks until all are connected at the same time. The first error ends the rendezvous of all ranks.
Status accept_all(int listener, int size, std::vector<Fd>& peers, JoinWait& wait) {
  while (true) {
    for (int rank = 1; rank < size; ++rank) TNT_RETURN_IF_ERROR(wait.check(rank));
    const int gone = gone_rank(peers);
    if (gone != 0) TNT_RETURN_IF_ERROR(wait.check_gone(gone));
    const std::vector<int> missing = missing_ranks(peers);
    if (missing.empty() && gone == 0) return {};
    (void)wait.warn(missing);
    const Duration left = missing.empty() ? kPollInterval : wait.deadline().left();
    if (!wait_readable(listener, Deadline::after(std::min(kPollInterval, left)))) {
      if (!wait.deadline().passed() || missing.empty()) continue;
      return {Code::kTimeout,
              text("of ", size, " ranks, these did not join in time: ", JoinWait::list_of(missing),
                   "; did they start, and with the same TNT_JOB_ID?")};
    }
    Fd peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.valid() && errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
      return Status::system("accept of a rank", errno);
    }
    if (!peer.valid() || user_of(peer.get()) != ::getuid()) continue;
    const Result<Hello> hello =
        read_hello(peer.get(), Deadline::after(std::min(kHelloTimeout, wait.deadline().left())));
    if (!hello.ok()) continue;  // a foreign peer; our ranks may come until the deadline
    const Hello& said = hello.value();
    Status status;
    if (std::strcmp(said.version, TARANTELLA_VERSION) != 0) {
      status = {Code::kMismatch, text("rank ", said.rank, " runs tarantella ", said.version, ", rank 0 ",
                                      TARANTELLA_VERSION, "; install one version everywhere")};
    } else if (said.size != size || said.rank < 1 || said.rank >= size) {
      status = {Code::kMismatch,
                text("a process claims to be rank ", said.rank, " of ", said.size, ", but this node has ",
                     size, " ranks; are two jobs using one TNT_JOB_ID?")};
    } else if (peers[static_cast<size_t>(said.rank)].valid()) {
      status = {Code::kMismatch,
                text("two processes claim to be rank ", said.rank, "; TNT_RANK must be different for each")};
    }
    if (!status.ok()) {
      send_answer(peer.get(), status, -1);
      return status;
    }
    peers[static_cast<size_t>(said.rank)] = std::move(peer);
  }
}

/// The error for a socket name of `job` that is in use.
Status taken(const std::string& job, const Address& address) {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.valid() &&
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) == 0) {
    const auto user = user_of(socket.get());
    if (user && *user != ::getuid()) return belongs_to_another(job, *user);
  }
  return {Code::kMismatch,
          text("a rank 0 of job ", job, " is already here; are two jobs using one TNT_JOB_ID?")};
}

Result<Fd> host(const std::string& job, int size, JoinWait& wait) {
  Fd memory = make_memfd("tarantella", MFD_CLOEXEC);
  if (!memory.valid()) return Status::system("memfd_create", errno);
  if (size == 1) return memory;
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return Status::system("socket", errno);
  const Address address = address_of(job);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0) {
    if (errno != EADDRINUSE) return Status::system("bind of the node's rendezvous", errno);
    return taken(job, address);
  }
  if (::listen(listener.get(), size) != 0) return Status::system("listen", errno);
  std::vector<Fd> peers(static_cast<size_t>(size));
  const Status status = accept_all(listener.get(), size, peers, wait);
  for (const Fd& peer : peers) {
    if (peer.valid()) send_answer(peer.get(), status, memory.get());
  }
  if (!status.ok()) return status;
  return memory;
}

Result<Fd> join(const std::string& job, int rank, int size, JoinWait& wait) {
  const Address address = address_of(job);
  const Deadline deadline = wait.deadline();
  const Deadline soon = Deadline::after(1s);
  while (true) {
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return Status::system("socket", errno);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) == 0) {
      const auto user = user_of(socket.get());
      if (user != ::getuid()) return belongs_to_another(job, user.value_or(uid_t{65534}));
      const Hello hello = hello_of(rank, size);
      if (::send(socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(hello))) {
        return receive_answer(socket.get(), Deadline::after(deadline.left() + kHelloTimeout));
      }
    } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      return Status::system("connect to the node's rendezvous", errno);
    }
    if (deadline.passed()) {
      return Status(Code::kTimeout,
                    text("rank ", rank, " found no rank 0 of job ", job,
                         " on this node in time; did it start, and with the same TNT_JOB_ID?"));
    }
    TNT_RETURN_IF_ERROR(wait.check(0));
    (void)wait.warn({0});
    std::this_thread::sleep_for(soon.passed() ? 20ms : 1ms);
  }
}

}  // namespace

Result<Fd> rendezvous(const std::string& job, int rank, int size, Deadline deadline,
                      const RendezvousOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return Status(Code::kInvalidArgument, text("there is no rank ", rank, " in a node of ", size, " ranks"));
  }
  if (job.empty() || job.size() > kMaxJobName) {
    return Status(Code::kInvalidArgument, text("TNT_JOB_ID must have 1 to ", kMaxJobName, " characters"));
  }
  JoinWait wait(rank, deadline, options);
  return rank == 0 ? host(job, size, wait) : join(job, rank, size, wait);
}

}  // namespace tarantella::runtime
