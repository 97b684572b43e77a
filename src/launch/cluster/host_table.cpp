#include "launch/cluster/host_table.h"

#include <algorithm>
#include <map>

#include "launch/hosts/hosts.h"
#include "launch/system/message.h"

namespace tarantella::launch {

HostTable::HostTable(const std::vector<HostAssignment>& assignments)
    : states_(static_cast<size_t>(assignments.back().first_rank + assignments.back().ranks)) {
  for (const HostAssignment& assignment : assignments) hosts_.push_back({assignment});
}

bool HostTable::all_ready() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const Entry& host) { return host.ready; });
}

bool HostTable::all_finished() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const Entry& host) { return host.finished; });
}

void HostTable::finish_all() {
  for (Entry& host : hosts_) host.finished = true;
}

std::vector<std::string> HostTable::unready_host_names() const {
  const bool all_came =
      std::all_of(hosts_.begin(), hosts_.end(), [](const Entry& host) { return host.connection != nullptr; });
  std::vector<std::string> unready;
  for (const Entry& host : hosts_) {
    const bool answers = all_came ? host.ready : host.connection != nullptr;
    if (!answers) unready.push_back(host.assignment.host);
  }
  return unready;
}

std::string HostTable::unready_hosts() const {
  std::vector<Host> unready;
  for (const std::string& host : unready_host_names()) unready.push_back({host, {}});
  return text(unready.size() == 1 ? "host " : "hosts ", unready.empty() ? "of the job" : host_list(unready));
}

std::vector<std::string> HostTable::warnings() const {
  std::map<std::string, std::vector<Host>> warners;
  for (const Entry& host : hosts_) {
    for (const std::string& warning : host.warnings) warners[warning].push_back({host.assignment.host, {}});
  }
  std::vector<std::string> lines;
  for (const auto& [warning, which] : warners) {
    const char* noun = which.size() == 1 ? "host " : "hosts ";
    lines.push_back(text("WARNING: ", noun, host_list(which), ": ", printable(warning)));
  }
  return lines;
}

std::string HostTable::ranks_of(size_t index) const {
  const HostAssignment& assignment = hosts_[index].assignment;
  return assignment.ranks == 1
             ? text("rank ", assignment.first_rank)
             : text("ranks ", assignment.first_rank, "-", assignment.first_rank + assignment.ranks - 1);
}

void HostTable::broadcast(Message::Kind kind, const std::string& content) {
  for (Entry& host : hosts_) {
    if (host.connection && !host.finished) host.connection->send(kind, content);
  }
}

void HostTable::flush_all(Duration timeout) {
  for (Entry& host : hosts_) {
    if (host.connection) host.connection->flush(Deadline::after(timeout));
  }
}

void HostTable::receive_rank_status(size_t index, const std::vector<int>& states) {
  const HostAssignment& assignment = hosts_[index].assignment;
  if (states.size() != static_cast<size_t>(assignment.ranks)) return;
  std::copy(states.begin(), states.end(), states_.begin() + assignment.first_rank);
  states_changed_ = true;
}

void HostTable::send_rank_status(Duration pause) {
  const bool waits = std::find(states_.begin(), states_.end(), 0) != states_.end();
  if (!states_changed_ || (waits && states_sent_at_ && Clock::now() - *states_sent_at_ < pause)) return;
  states_changed_ = false;
  states_sent_at_ = Clock::now();
  broadcast(Message::Kind::kRankStatus, encode(states_));
}

}  // namespace tarantella::launch
