#include "transport/mpi/pmi_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace tarantella::transport {
namespace {

constexpr size_t kLongestLine = 64 * 1024;
constexpr size_t kMostValues = 1 << 20;
constexpr char kName[] = "tarantella";
constexpr std::string_view kOfStarters[] = {"PMI_",  "PMIX_",     "MPI_LOCAL",  "HYDI_",
                                            "OMPI_", "I_MPI_PMI", "I_MPI_HYDRA"};

/// The word behind "name=" in a line of words; the rest of the line for the last one, "value".
std::string_view word_of(std::string_view line, std::string_view name) {
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (word.starts_with(name) && word.substr(name.size()).starts_with('='))
      return name == "value" ? line.substr(at + name.size() + 1) : word.substr(name.size() + 1);
    at = end + 1;
  }
  return {};
}

bool say(int socket, const std::string& line) {
  const std::string all = line + '\n';
  return ::send(socket, all.data(), all.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(all.size());
}

/// Each process is alone on its machine, as far as MPI is concerned.
std::string mapping(size_t size) { return text("(vector,(0,", size, ",1))"); }

}  // namespace

PmiServer::PmiServer(std::vector<Fd> sockets) {
  for (Fd& each : sockets) processes_.push_back({std::move(each), {}, false});
  values_.emplace("PMI_process_mapping", mapping(processes_.size()));
}

Status PmiServer::serve(Deadline deadline) {
  const auto is_done = [](const Process& each) { return each.is_done; };
  Status status;
  while (status.ok() && !std::all_of(processes_.begin(), processes_.end(), is_done)) {
    std::vector<pollfd> entries;
    for (const Process& each : processes_)
      entries.push_back({each.is_done ? -1 : each.socket.get(), POLLIN, 0});
    const int ready = ::poll(entries.data(), entries.size(), deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      status = {Code::kTimeout, "MPI has not started in time between the machines"};
      break;
    }
    for (size_t k = 0; k < entries.size() && status.ok(); ++k) {
      if (entries[k].revents != 0 && !read(processes_[k]))
        status = {Code::kPeerLost,
                  text("the first rank of machine ", k, " ended while MPI started; see its own message")};
    }
  }
  return status;
}

std::vector<Fd> PmiServer::take_sockets() {
  std::vector<Fd> sockets;
  for (Process& each : processes_) sockets.push_back(std::move(each.socket));
  return sockets;
}

bool PmiServer::read(Process& process) {
  char buffer[4096];
  const ssize_t got = ::recv(process.socket.get(), buffer, sizeof buffer, 0);
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  process.heard.append(buffer, static_cast<size_t>(got));
  for (size_t end = 0; (end = process.heard.find('\n')) != std::string::npos;) {
    const std::string line = process.heard.substr(0, end);
    process.heard.erase(0, end + 1);
    if (!take(process, line)) return false;
  }
  return process.heard.size() <= kLongestLine;
}

bool PmiServer::take(Process& process, std::string_view line) {
  const std::string_view command = word_of(line, "cmd");
  const auto answer = [&](const auto&... words) { return say(process.socket.get(), text("cmd=", words...)); };
  if (command == "init") return answer("response_to_init rc=0 pmi_version=1 pmi_subversion=1");
  if (command == "get_maxes") return answer("maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024");
  if (command == "get_appnum") return answer("appnum rc=0 appnum=0");
  if (command == "get_my_kvsname") return answer("my_kvsname rc=0 kvsname=", kName);
  if (command == "get_universe_size") return answer("universe_size rc=0 size=", processes_.size());
  if (command == "put") {
    if (values_.size() >= kMostValues) return false;
    values_.insert_or_assign(std::string(word_of(line, "key")), std::string(word_of(line, "value")));
    return answer("put_result rc=0");
  }
  if (command == "get") {
    const auto found = values_.find(word_of(line, "key"));
    if (found == values_.end()) return answer("get_result rc=-1 msg=key_not_found");
    return answer("get_result rc=0 value=", found->second);
  }
  if (command == "barrier_in") return count_barrier(), true;
  if (command == "finalize") {
    process.is_done = true;
    return answer("finalize_ack rc=0");
  }
  return false;  // also "abort"
}

void PmiServer::count_barrier() {
  if (++in_barrier_ < processes_.size()) return;
  in_barrier_ = 0;
  for (const Process& each : processes_) (void)say(each.socket.get(), "cmd=barrier_out rc=0");
}

Status PmiServer::finalize_pmi(int socket, Deadline deadline) {
  (void)say(socket, "cmd=finalize");
  std::string heard;
  while (heard.find("finalize_ack") == std::string::npos) {
    pollfd readable{socket, POLLIN, 0};
    const int ready = ::poll(&readable, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {Code::kTimeout, "MPI has not started in time between the machines"};
    char buffer[256];
    const ssize_t got = ::recv(socket, buffer, sizeof buffer, 0);
    if (got <= 0) return {Code::kPeerLost, "rank 0 ended while MPI started; see its own message"};
    heard.append(buffer, static_cast<size_t>(got));
  }
  return {};
}

Variables process_variables(int socket, int rank, int size) {
  Variables variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view word = *each;
    const bool is_theirs = std::any_of(std::begin(kOfStarters), std::end(kOfStarters),
                                       [&](auto prefix) { return word.starts_with(prefix); });
    if (is_theirs && word.find("_MCA_") == std::string_view::npos)
      variables.emplace(word.substr(0, word.find('=')), std::nullopt);
  }
  variables["PMI_FD"] = std::to_string(socket);
  variables["PMI_RANK"] = std::to_string(rank);
  variables["PMI_SIZE"] = std::to_string(size);
  return variables;
}

}  // namespace tarantella::transport
