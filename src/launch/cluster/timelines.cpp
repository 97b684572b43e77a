#include "launch/cluster/timelines.h"

#include <algorithm>
#include <utility>

#include "launch/say.h"
#include "launch/timeline_file.h"

namespace tarantella::launch {
namespace {

constexpr int kQuestions = 8;  // the quickest answer counts
constexpr Duration kAnswers = 1s;
constexpr size_t kPiece = 4096;  // records in a message

/// How far this clock is ahead of the head's; nothing if the head does not answer. Drops other messages of the head.
std::optional<timeline::Ahead> compare_clocks(Connection& head) {
  std::optional<timeline::Ahead> best;
  const Deadline deadline = Deadline::after(kAnswers);
  for (int question = 0; question < kQuestions && !deadline.passed() && !head.closed(); ++question) {
    const int64_t sent = timeline::now();
    head.send(Message::Kind::kAskTime, content_of(Time{question}));
    head.flush(deadline);
    for (bool answered = false; !answered && !head.closed() && !deadline.passed();) {
      for (const Message& message : head.wait_for_messages(deadline)) {
        const int64_t received = timeline::now();
        const std::optional<Time> time = time_in(message);
        if (message.kind != Message::Kind::kTime || !time || time->question != question) continue;
        answered = true;
        const timeline::Ahead found = timeline::ahead_of(time->shown, sent, received);
        if (!best || found.within < best->within) best = found;
      }
    }
  }
  return best;
}

}  // namespace

OwnTimelines::OwnTimelines(const Options& options, int ranks, int first, Connection& head)
    : wanted_(wants_timeline(options)), ranks_(ranks), first_(first), head_(head) {
  if (!wanted_) return;
  memory_ = timeline_memory(options, ranks);
  start_ = compare_clocks(head);
}

void OwnTimelines::send(Deadline deadline) const {
  if (!wanted_ || head_.closed()) return;
  std::optional<timeline::Ahead> end = compare_clocks(head_);
  if (!end) end = start_;
  if (end) {
    head_.send(Message::Kind::kClock, content_of(timeline::Shift(start_.value_or(*end), *end)));
  }
  for (int rank = 0; rank < ranks_ && memory_.fd() >= 0; ++rank) send_records(rank, deadline);
  const char* why = !end               ? "its clock could not be compared"
                    : memory_.fd() < 0 ? "it had no memory for them"
                                       : "";
  head_.send(Message::Kind::kRecorded, why);
  head_.flush(deadline);
}

void OwnTimelines::send_records(int rank, Deadline deadline) const {
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
    head_.send(Message::Kind::kRecords, content_of(piece));
    head_.flush(deadline);
    at += count;
  } while (at < records.size() && !head_.closed() && !deadline.passed());
}

AllTimelines::AllTimelines(const Options& options, const std::vector<HostShare>& shares)
    : options_(options), shares_(shares), nodes_(wants_timeline(options) ? shares.size() : 0) {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].ranks.resize(static_cast<size_t>(shares[node].ranks));
  }
}

void AllTimelines::take(size_t node, const Message& message) {
  if (complete(node)) return;
  Node& from = nodes_[node];
  if (const auto clock = clock_in(message)) from.clock = clock;
  if (const auto records = records_in(message)) {
    const int rank = records->rank - shares_[node].first;
    if (rank < 0 || rank >= shares_[node].ranks) return;
    from.ranks[static_cast<size_t>(rank)].add(static_cast<uint64_t>(records->made), records->bytes);
  }
  if (message.kind == Message::Kind::kRecorded) from.end = message.content;
}

bool AllTimelines::complete(size_t node) const { return node >= nodes_.size() || nodes_[node].end; }

std::vector<timeline::Process> AllTimelines::processes() {
  std::vector<timeline::Process> all;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    const std::optional<timeline::Shift>& clock = nodes_[node].clock;
    int rank = shares_[node].first;
    for (timeline::Copy& copy : nodes_[node].ranks) {
      if (clock && copy.begun()) {
        all.push_back({rank, shares_[node].host, copy.timeline(), *clock});
        all.back().timeline.mark(origin_);
      }
      ++rank;
    }
  }
  return all;
}

timeline::Hosts AllTimelines::hosts() const {
  timeline::Hosts hosts;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    const Node& each = nodes_[node];
    if (each.clock) hosts.clocks.push_back({shares_[node].host, *each.clock});
    const bool all_there = std::all_of(each.ranks.begin(), each.ranks.end(),
                                       [](const timeline::Copy& copy) { return copy.complete(); });
    if (all_there && each.clock) continue;
    const bool told = each.end && !each.end->empty();
    hosts.missing.push_back({shares_[node].host, told ? printable(*each.end) : "they did not arrive"});
  }
  return hosts;
}

void AllTimelines::write() {
  if (nodes_.empty()) return;
  const timeline::Hosts found = hosts();
  write_timeline(options_, processes(), found);
  std::string clocks;
  for (const auto& [host, clock] : found.clocks) {
    clocks += text(clocks.empty() ? "" : "; ", host, "'s ", clock.words());
  }
  if (!clocks.empty() && options_.shows_information()) {
    say("INFO: clocks, compared with the one of the launcher: " + clocks);
  }
  for (const auto& [host, why] : found.missing) {
    if (options_.shows_warnings()) say(text("WARNING: the timeline lacks records of ", host, ": ", why));
  }
}

}  // namespace tarantella::launch
