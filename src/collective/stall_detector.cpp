#include "collective/stall_detector.h"

#include <algorithm>

#include "base/log.h"

namespace tarantella::collective {
namespace {

// The most ranks in a cycle: waits change while they are followed, and that must end.
constexpr size_t kLongest = 4096;
constexpr Duration kAnswer = 2s;  // how long a rank may take to say where it is

bool same(const WaitEdge& a, const WaitEdge& b) {
  return a.rank == b.rank && a.gradients == b.gradients && a.began == b.began;
}

bool checked_again(const WaitEdge& first, const WaitEdge& now) {
  return same(first, now) && first.checks != now.checks;
}

uint32_t microseconds(Clock::time_point time) {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace

StallDetector::StallDetector(NodeGroup& group, WaitKind kind, bool of_creator_thread, std::string what)
    : group_(group),
      published_(group.rank_table().waits(group.job_rank(group.rank()))),
      creator_edge_(!of_creator_thread             ? nullptr
                    : kind == WaitKind::kExclusive ? &published_.creator_exclusive
                                                   : &published_.creator_gradients),
      own_rank_(group.job_rank(group.rank())),
      what_(std::move(what)),
      active_(4 * NodeGroup::kCheckInterval),
      edge_{0, kind == WaitKind::kGradients, 0, microseconds(since_)},
      next_warning_(group.options().warn_every) {}

StallDetector::~StallDetector() {
  // another thread may have written its own wait since
  WaitEdge mine = edge_;
  published_.newest.compare_exchange_strong(mine, {});
  mine = edge_;
  if (creator_edge_ != nullptr) creator_edge_->compare_exchange_strong(mine, {});
}

Status StallDetector::check(int rank) {
  TNT_RETURN_IF_ERROR(group_.failure());
  const Duration now = active_.update();
  const uint32_t heartbeat = group_.heartbeat(rank);
  if (rank != rank_) {
    suspect_since_ = Duration::max();
    question_.reset();
  }
  if (rank != rank_ || heartbeat != heartbeat_) {
    rank_ = rank;
    heartbeat_ = heartbeat;
    last_sign_ = now;
  }
  const int job_rank = group_.job_rank(rank);
  switch (group_.state_of(rank)) {
    case RankState::kDead:
      return dead_or_departed(text("rank ", job_rank, " has died; its output or its launcher says why"));
    case RankState::kDeparted:
      return dead_or_departed(
          text("rank ", job_rank,
               " has ended; make the same calls with the same number of batches on every rank"));
    case RankState::kAlive:
      break;
  }
  if (now - last_sign_ > group_.stuck_timeout()) {
    const std::string where = reported_location(group_.rank_table().location(job_rank));
    return group_.fail(
        {Code::kTimeout, text(place(), "rank ", job_rank, " is stopped or stuck: no sign of life for ",
                              static_cast<int>(in_seconds(now - last_sign_)), " s (limit: TNT_TIMEOUT)",
                              where.empty() ? "" : "; it was last seen in ", where)});
  }
  publish(job_rank);
  TNT_RETURN_IF_ERROR(check_cycles());
  warn(job_rank);
  return check_stall(job_rank);
}

Status StallDetector::check_stall(int job_rank) {
  const auto waits = [this](int rank) {
    const WaitEdges& edges = group_.rank_table().waits(rank);
    return edges.newest.load().rank != 0 || edges.awaits_other_node.load();
  };
  const Duration now = active_.so_far();
  if (!group_.check_stall_timeout(now, waits(job_rank) ? NodeGroup::kStallDelayIfPeerWaits : Duration()))
    return {};
  std::string ranks;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const int other = group_.job_rank(rank);
    if (other == job_rank || (other != own_rank_ && !waits(other)))
      ranks += text(ranks.empty() ? "" : ", ", "rank ", other);
  }
  return group_.fail_stalled(place(), ranks, now);
}

void StallDetector::warn(int job_rank) {
  const Duration now = active_.so_far();
  const Duration every = group_.options().warn_every;
  if (now >= next_warning_ && !question_) {
    next_warning_ = now + every;
    question_.emplace(group_.rank_table(), job_rank);
    asked_at_ = now;
  }
  if (!question_ || (!question_->answered() && now - asked_at_ < std::min(kAnswer, every))) return;
  log_warning(text("rank ", own_rank_, " has waited ", static_cast<int>(in_seconds(Clock::now() - since_)),
                   " s for rank ", job_rank, " in ", what_, "; ", question_->describe()));
  question_.reset();
}

Status StallDetector::dead_or_departed(const std::string& reason) {
  const Duration now = active_.so_far();
  suspect_since_ = std::min(suspect_since_, now);
  if (now - suspect_since_ < group_.options().failure_delay) return {};
  return group_.fail({Code::kPeerLost, place() + reason});
}

void StallDetector::publish(int job_rank) {
  edge_.rank = static_cast<uint16_t>(job_rank + 1);
  ++edge_.checks;
  published_.newest.store(edge_);
  if (creator_edge_ != nullptr) creator_edge_->store(edge_);
}

template <typename Next>
StallDetector::Cycle StallDetector::follow(WaitEdge first, Next next) const {
  Cycle found = {first};
  while (found.back().rank != 0 && found.back().rank - 1 != own_rank_ && found.size() != kLongest)
    found.push_back(next(found.back()));
  return found.back().rank - 1 == own_rank_ ? found : Cycle();
}

StallDetector::Cycle StallDetector::creator_threads_cycle() const {
  const auto wait_of = [this](int rank, bool awaits_gradients) {
    const WaitEdges& edges = group_.rank_table().waits(rank);
    const WaitEdge exclusive = edges.creator_exclusive.load();
    // a creator thread in a step does not wait exclusively, but may still submit other gradients
    return exclusive.rank != 0 || awaits_gradients ? exclusive : edges.creator_gradients.load();
  };
  const Cycle found = follow(wait_of(own_rank_, false), [&](const WaitEdge& before) {
    return wait_of(before.rank - 1, before.gradients);
  });
  if (found.empty() || !same(found.front(), edge_)) return {};
  return found.front().gradients && found.back().gradients ? Cycle() : found;
}

StallDetector::Cycle StallDetector::any_cycle() const {
  return follow(edge_, [this](const WaitEdge& before) {
    return group_.rank_table().waits(before.rank - 1).newest.load();
  });
}

Status StallDetector::check_cycles() {
  const Duration now = active_.so_far();
  const Cycle found = creator_threads_cycle();
  if (!std::equal(found.begin(), found.end(), cycle_.begin(), cycle_.end(), same)) {
    cycle_ = found;
    cycle_since_ = now;
  }
  // a wait may be over without its thread, stopped by a signal, having seen it: each rank must have checked again
  if (!found.empty() && now - cycle_since_ >= group_.options().failure_delay &&
      std::equal(cycle_.begin(), cycle_.end(), found.begin(), checked_again))
    return deadlock(found, "");

  const Cycle lasting = any_cycle();
  lasting_since_ = lasting.empty() ? Duration::max() : std::min(lasting_since_, now);
  if (now - lasting_since_ > group_.stuck_timeout()) return deadlock(lasting, " (limit: TNT_TIMEOUT)");
  return {};
}

Status StallDetector::deadlock(const Cycle& cycle, const char* limit) const {
  int rank = own_rank_;
  for (const WaitEdge& edge : cycle) {
    if (edge.gradients != edge_.gradients)
      return group_.fail({Code::kMismatch, text(place(), "rank ", rank, " waits for ",
                                                edge.gradients ? "gradients" : "a blocking call",
                                                " meanwhile; give every rank the same number of batches and "
                                                "the same calls, and put no condition "
                                                "on its own rows or loss around either",
                                                limit)});
    rank = edge.rank - 1;
  }
  const int next = cycle.front().rank - 1;
  if (edge_.gradients)
    return group_.fail(
        {Code::kTimeout,
         text(place(), "rank ", next, " has waited for other gradients for ",
              static_cast<int>(in_seconds(Clock::now() - since_)),
              " s; take and apply the same gradients in the same order on every rank, under no condition "
              "on its own rows",
              limit)});
  return group_.fail({Code::kMismatch, text(place(), "rank ", next,
                                            " waits for it in another call: the ranks wait for one another; "
                                            "make the calls of all groups in the same order on every rank",
                                            limit)});
}

std::string StallDetector::place() const { return text("rank ", own_rank_, " waits in ", what_, ": "); }

}  // namespace tarantella::collective
