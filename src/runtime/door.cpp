#include "runtime/door.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace tarantella::runtime {
namespace {

constexpr Duration kPatience = 3s;
constexpr size_t kMostStrangers = 256;
constexpr int kAtOnce = 64;  // so many are accepted in one call, which others may wait for

std::string_view bytes_of(const Tag128& tag) {
  return {reinterpret_cast<const char*>(tag.data()), tag.size()};
}

/// What one side proves: `who` tells the sides apart.
Tag128 proof(const Tag128& key, std::string_view who, const Tag128& of_host, const Tag128& of_guest) {
  return mac(key, std::string(who).append(bytes_of(of_host)).append(bytes_of(of_guest)));
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

std::vector<int> Door::descriptors() const {
  std::vector<int> all{listener_.get()};
  for (const Stranger& each : strangers_) all.push_back(each.socket.get());
  return all;
}

bool Door::accept_one() {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    const bool no_room = errno == EMFILE || errno == ENFILE;
    if (no_room && !strangers_.empty()) strangers_.pop_front();
    return no_room && !strangers_.empty();
  }
  const Tag128 question = random_tag();
  if (!send(socket.get(), bytes_of(question))) return true;
  if (strangers_.size() >= kMostStrangers) strangers_.pop_front();
  strangers_.push_back(
      {.socket = std::move(socket), .question = question, .deadline = Deadline::after(kPatience)});
  return true;
}

std::optional<bool> Door::hear(Stranger& from) {
  const ssize_t got =
      ::recv(from.socket.get(), from.said.data() + from.heard, from.said.size() - from.heard, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return from.deadline.passed() ? std::optional(false) : std::nullopt;
  if (got <= 0) return false;
  from.heard += static_cast<size_t>(got);
  if (from.heard < from.said.size()) return std::nullopt;
  Tag128 own, told;
  std::memcpy(own.data(), from.said.data(), own.size());
  std::memcpy(told.data(), from.said.data() + own.size(), told.size());
  if (!are_equal(told, proof(key_, "guest", from.question, own))) return false;
  return send(from.socket.get(), bytes_of(proof(key_, "host", from.question, own)));
}

std::vector<Fd> Door::admit() {
  for (int left = kAtOnce; left > 0 && accept_one();) --left;
  std::vector<Fd> admitted;
  std::erase_if(strangers_, [&](Stranger& each) {
    const std::optional<bool> known = hear(each);
    if (known.value_or(false)) admitted.push_back(std::move(each.socket));
    return known.has_value();
  });
  return admitted;
}

bool knock(int socket, std::string_view secret, Deadline deadline) {
  const Tag128 key = key_of(secret), own = random_tag();
  Tag128 question, answer;
  if (!receive(socket, question, deadline)) return false;
  const std::string said = std::string(bytes_of(own)).append(bytes_of(proof(key, "guest", question, own)));
  return send(socket, said) && receive(socket, answer, deadline) &&
         are_equal(answer, proof(key, "host", question, own));
}

}  // namespace tarantella::runtime
