#include "runtime/authenticated_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace tarantella::runtime {
namespace {

constexpr Duration kProofTimeout = 3s;
constexpr size_t kMostUnauthenticated = 256;
constexpr int kMaxAcceptsPerCall = 64;  // so many are accepted in one call, which others may wait for

std::string_view bytes_of(const Tag128& tag) {
  return {reinterpret_cast<const char*>(tag.data()), tag.size()};
}

/// What one side proves: `who` ("host" for the server, "guest" for the client) tells the sides apart.
Tag128 proof(const Tag128& key, std::string_view who, const Tag128& of_server, const Tag128& of_client) {
  return mac(key, std::string(who).append(bytes_of(of_server)).append(bytes_of(of_client)));
}

bool send(int socket, std::string_view bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool receive(int socket, Tag128& tag, Deadline deadline) {
  for (size_t have = 0; have < tag.size();) {
    pollfd readable{socket, POLLIN, 0};
    const int ready = ::poll(&readable, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::recv(socket, tag.data() + have, tag.size() - have, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    have += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

std::vector<int> AuthenticatedListener::descriptors() const {
  std::vector<int> all{listener_.get()};
  for (const Unauthenticated& each : unauthenticated_) all.push_back(each.socket.get());
  return all;
}

bool AuthenticatedListener::accept_one() {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    const bool no_descriptors = errno == EMFILE || errno == ENFILE;
    if (no_descriptors && !unauthenticated_.empty()) unauthenticated_.pop_front();
    return no_descriptors && !unauthenticated_.empty();
  }
  const Tag128 challenge = random_tag();
  if (!send(socket.get(), bytes_of(challenge))) return true;
  if (unauthenticated_.size() >= kMostUnauthenticated) unauthenticated_.pop_front();
  unauthenticated_.push_back(
      {.socket = std::move(socket), .challenge = challenge, .deadline = Deadline::after(kProofTimeout)});
  return true;
}

std::optional<bool> AuthenticatedListener::read_proof(Unauthenticated& from) {
  const ssize_t got =
      ::recv(from.socket.get(), from.received.data() + from.length, from.received.size() - from.length, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return from.deadline.passed() ? std::optional(false) : std::nullopt;
  if (got <= 0) return false;
  from.length += static_cast<size_t>(got);
  if (from.length < from.received.size()) return std::nullopt;
  Tag128 own, told;
  std::memcpy(own.data(), from.received.data(), own.size());
  std::memcpy(told.data(), from.received.data() + own.size(), told.size());
  if (!are_equal(told, proof(key_, "guest", from.challenge, own))) return false;
  return send(from.socket.get(), bytes_of(proof(key_, "host", from.challenge, own)));
}

std::vector<Fd> AuthenticatedListener::accept() {
  for (int left = kMaxAcceptsPerCall; left > 0 && accept_one();) --left;
  std::vector<Fd> accepted;
  std::erase_if(unauthenticated_, [&](Unauthenticated& each) {
    const std::optional<bool> known = read_proof(each);
    if (known.value_or(false)) accepted.push_back(std::move(each.socket));
    return known.has_value();
  });
  return accepted;
}

bool authenticate(int socket, std::string_view secret, Deadline deadline) {
  const Tag128 key = key_of(secret), own = random_tag();
  Tag128 challenge, answer;
  if (!receive(socket, challenge, deadline)) return false;
  const std::string received =
      std::string(bytes_of(own)).append(bytes_of(proof(key, "guest", challenge, own)));
  return send(socket, received) && receive(socket, answer, deadline) &&
         are_equal(answer, proof(key, "host", challenge, own));
}

}  // namespace tarantella::runtime
