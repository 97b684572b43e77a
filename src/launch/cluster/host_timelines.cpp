#include "launch/cluster/host_timelines.h"

#include <algorithm>
#include <utility>

#include "launch/output/timeline_file.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr int kQueries = 8;  // the quickest answer counts
constexpr Duration kReplyTimeout = 1s;
constexpr size_t kPiece = 4096;  // records in a message

/// How far this clock is ahead of the coordinator's; nothing if the coordinator does not answer. Drops other messages
/// of the coordinator.
std::optional<timeline::ClockOffset> compare_clocks(Connection& coordinator) {
  std::optional<timeline::ClockOffset> best;
  const Deadline deadline = Deadline::after(kReplyTimeout);
  for (int query = 0; query < kQueries && !deadline.passed() && !coordinator.closed(); ++query) {
    const int64_t sent = timeline::now();
    coordinator.send(Message::Kind::kTimeQuery, encode(Time{query}));
    coordinator.flush(deadline);
    for (bool answered = false; !answered && !coordinator.closed() && !deadline.passed();) {
      for (const Message& message : coordinator.wait_for_messages(deadline)) {
        const int64_t received = timeline::now();
        const std::optional<Time> time = decode_time(message);
        if (message.kind != Message::Kind::kTimeReply || !time || time->query != query) continue;
        answered = true;
        const timeline::ClockOffset found = timeline::offset_of(time->clock, sent, received);
        if (!best || found.within < best->within) best = found;
      }
    }
  }
  return best;
}

}  // namespace

AgentTimelines::AgentTimelines(const Options& options, int ranks, int first, Connection& coordinator)
    : wanted_(wants_timeline(options)), ranks_(ranks), first_(first), coordinator_(coordinator) {
  if (!wanted_) return;
  memory_ = timeline_memory(options, ranks);
  start_ = compare_clocks(coordinator);
}

void AgentTimelines::send(Deadline deadline) const {
  if (!wanted_ || coordinator_.closed()) return;
  std::optional<timeline::ClockOffset> end = compare_clocks(coordinator_);
  if (!end) end = start_;
  if (end) {
    coordinator_.send(Message::Kind::kClock, encode(timeline::ClockDrift(start_.value_or(*end), *end)));
  }
  for (int rank = 0; rank < ranks_ && memory_.fd() >= 0; ++rank) send_records(rank, deadline);
  const char* why = !end               ? "its clock could not be compared"
                    : memory_.fd() < 0 ? "it had no memory for them"
                                       : "";
  coordinator_.send(Message::Kind::kRecordsEnd, why);
  coordinator_.flush(deadline);
}

void AgentTimelines::send_records(int rank, Deadline deadline) const {
  const Result<Mapping> part = memory_.part(rank);
  if (!part.ok()) return;
  const timeline::Timeline timeline(part.value().bytes());
  const std::span<const timeline::Record> records = timeline.records();
  size_t at = 0;
  do {  // one piece at least: a rank without records has a lane
    const size_t count = std::min(kPiece, records.size() - at);
    const auto bytes = std::as_bytes(records.subspan(at, count));
    const Records piece{first_ + rank, static_cast<int64_t>(timeline.made()),
                        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
    coordinator_.send(Message::Kind::kRecords, encode(piece));
    coordinator_.flush(deadline);
    at += count;
  } while (at < records.size() && !coordinator_.closed() && !deadline.passed());
}

JobTimelines::JobTimelines(const Options& options, const std::vector<HostAssignment>& assignments)
    : options_(options), assignments_(assignments), hosts_(wants_timeline(options) ? assignments.size() : 0) {
  for (size_t index = 0; index < hosts_.size(); ++index) {
    hosts_[index].ranks.resize(static_cast<size_t>(assignments[index].ranks));
  }
}

void JobTimelines::take(size_t index, const Message& message) {
  if (complete(index)) return;
  Host& from = hosts_[index];
  if (const auto clock = decode_clock(message)) from.clock = clock;
  if (const auto records = decode_records(message)) {
    const int rank = records->rank - assignments_[index].first_rank;
    if (rank < 0 || rank >= assignments_[index].ranks) return;
    from.ranks[static_cast<size_t>(rank)].add(static_cast<uint64_t>(records->made), records->bytes);
  }
  if (message.kind == Message::Kind::kRecordsEnd) from.end = message.content;
}

bool JobTimelines::complete(size_t index) const { return index >= hosts_.size() || hosts_[index].end; }

std::vector<timeline::Process> JobTimelines::processes() {
  std::vector<timeline::Process> all;
  for (size_t index = 0; index < hosts_.size(); ++index) {
    const std::optional<timeline::ClockDrift>& clock = hosts_[index].clock;
    int rank = assignments_[index].first_rank;
    for (timeline::Copy& copy : hosts_[index].ranks) {
      if (clock && copy.begun()) {
        all.push_back({rank, assignments_[index].host, copy.timeline(), *clock});
        all.back().timeline.mark(origin_);
      }
      ++rank;
    }
  }
  return all;
}

timeline::Hosts JobTimelines::hosts() const {
  timeline::Hosts hosts;
  for (size_t index = 0; index < hosts_.size(); ++index) {
    const Host& each = hosts_[index];
    if (each.clock) hosts.clocks.push_back({assignments_[index].host, *each.clock});
    const bool all_there = std::all_of(each.ranks.begin(), each.ranks.end(),
                                       [](const timeline::Copy& copy) { return copy.complete(); });
    if (all_there && each.clock) continue;
    const bool has_reason = each.end && !each.end->empty();
    hosts.missing.push_back(
        {assignments_[index].host, has_reason ? printable(*each.end) : "they did not arrive"});
  }
  return hosts;
}

void JobTimelines::write() {
  if (hosts_.empty()) return;
  const timeline::Hosts found = hosts();
  write_timeline(options_, processes(), found);
  std::string clocks;
  for (const auto& [host, clock] : found.clocks) {
    clocks += text(clocks.empty() ? "" : "; ", host, "'s ", clock.words());
  }
  if (!clocks.empty() && options_.shows_information()) {
    print_message("INFO: clocks, compared with the one of the launcher: " + clocks);
  }
  for (const auto& [host, why] : found.missing) {
    if (options_.shows_warnings())
      print_message(text("WARNING: the timeline lacks records of ", host, ": ", why));
  }
}

}  // namespace tarantella::launch
