#include "collective/watch.h"

#include <algorithm>

#include "base/log.h"

namespace tarantella::collective {
namespace {

// The most ranks in a circle: waits change while they are followed, and that must end.
constexpr size_t kLongest = 4096;
constexpr Duration kAnswer = 2s;  // how long a rank may take to say where it is

bool same(const Wait& a, const Wait& b) {
  return a.rank == b.rank && a.gradients == b.gradients && a.began == b.began;
}

bool looked_again(const Wait& first, const Wait& now) { return same(first, now) && first.looks != now.looks; }

uint32_t microseconds(Clock::time_point time) {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace

Watch::Watch(Group& group, WaitFor kind, bool callers, std::string what)
    : group_(group),
      shown_(group.members().waits(group.job_rank(group.rank()))),
      callers_wait_(!callers                 ? nullptr
                    : kind == WaitFor::kCall ? &shown_.callers_call
                                             : &shown_.callers_gradients),
      own_(group.job_rank(group.rank())),
      what_(std::move(what)),
      looked_at_(4 * Group::kSlice),
      wait_{0, kind == WaitFor::kGradients, 0, microseconds(since_)},
      next_warning_(group.options().warn_every) {}

Watch::~Watch() {
  // another thread may have written its own wait since
  Wait mine = wait_;
  shown_.newest.compare_exchange_strong(mine, {});
  mine = wait_;
  if (callers_wait_ != nullptr) callers_wait_->compare_exchange_strong(mine, {});
}

Status Watch::check(int rank) {
  TNT_RETURN_IF_ERROR(group_.failure());
  const Duration now = looked_at_.look();
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
  const int number = group_.job_rank(rank);
  switch (group_.presence(rank)) {
    case Presence::kGone:
      return suspect(text("rank ", number, " has died; its output or its launcher says why"));
    case Presence::kLeft:
      return suspect(text("rank ", number,
                          " has ended; make the same calls with the same number of batches on every rank"));
    case Presence::kHere:
      break;
  }
  if (now - last_sign_ > group_.limit()) {
    const std::string where = told(group_.members().place(number));
    return group_.fail(
        {Code::kTimeout, text(place(), "rank ", number, " is stopped or stuck: no sign of life for ",
                              static_cast<int>(in_seconds(now - last_sign_)), " s (limit: TNT_TIMEOUT)",
                              where.empty() ? "" : "; it was last seen in ", where)});
  }
  show(number);
  TNT_RETURN_IF_ERROR(check_circles());
  warn(number);
  return check_stall(number);
}

Status Watch::check_stall(int job_rank) {
  const auto waits = [this](int rank) {
    const Waits& shown = group_.members().waits(rank);
    return shown.newest.load().rank != 0 || shown.far.load();
  };
  const Duration now = looked_at_.so_far();
  if (!group_.stalls(now, waits(job_rank) ? Group::kStallsBehind : Duration())) return {};
  std::string ranks;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const int number = group_.job_rank(rank);
    if (number == job_rank || (number != own_ && !waits(number)))
      ranks += text(ranks.empty() ? "" : ", ", "rank ", number);
  }
  return group_.fail_stalled(place(), ranks, now);
}

void Watch::warn(int job_rank) {
  const Duration now = looked_at_.so_far();
  const Duration every = group_.options().warn_every;
  if (now >= next_warning_ && !question_) {
    next_warning_ = now + every;
    question_.emplace(group_.members(), job_rank);
    asked_at_ = now;
  }
  if (!question_ || (!question_->answered() && now - asked_at_ < std::min(kAnswer, every))) return;
  log_warning(text("rank ", own_, " has waited ", static_cast<int>(in_seconds(Clock::now() - since_)),
                   " s for rank ", job_rank, " in ", what_, "; ", question_->describe()));
  question_.reset();
}

Status Watch::suspect(const std::string& reason) {
  const Duration now = looked_at_.so_far();
  suspect_since_ = std::min(suspect_since_, now);
  if (now - suspect_since_ < group_.options().grace) return {};
  return group_.fail({Code::kPeerLost, place() + reason});
}

void Watch::show(int job_rank) {
  wait_.rank = static_cast<uint16_t>(job_rank + 1);
  ++wait_.looks;
  shown_.newest.store(wait_);
  if (callers_wait_ != nullptr) callers_wait_->store(wait_);
}

template <typename Next>
Watch::Circle Watch::follow(Wait first, Next next) const {
  Circle found = {first};
  while (found.back().rank != 0 && found.back().rank - 1 != own_ && found.size() != kLongest)
    found.push_back(next(found.back()));
  return found.back().rank - 1 == own_ ? found : Circle();
}

Watch::Circle Watch::callers_circle() const {
  const auto wait_of = [this](int rank, bool awaits_gradients) {
    const Waits& shown = group_.members().waits(rank);
    const Wait call = shown.callers_call.load();
    // a caller in a step makes no call, but may still submit other gradients
    return call.rank != 0 || awaits_gradients ? call : shown.callers_gradients.load();
  };
  const Circle found = follow(wait_of(own_, false),
                              [&](const Wait& before) { return wait_of(before.rank - 1, before.gradients); });
  if (found.empty() || !same(found.front(), wait_)) return {};
  return found.front().gradients && found.back().gradients ? Circle() : found;
}

Watch::Circle Watch::any_circle() const {
  return follow(wait_,
                [this](const Wait& before) { return group_.members().waits(before.rank - 1).newest.load(); });
}

Status Watch::check_circles() {
  const Duration now = looked_at_.so_far();
  const Circle found = callers_circle();
  if (!std::equal(found.begin(), found.end(), circle_.begin(), circle_.end(), same)) {
    circle_ = found;
    circle_since_ = now;
  }
  // a wait may be over without its thread, stopped by a signal, having seen it: each rank must have checked again
  if (!found.empty() && now - circle_since_ >= group_.options().grace &&
      std::equal(circle_.begin(), circle_.end(), found.begin(), looked_again))
    return entangled(found, "");

  const Circle lasting = any_circle();
  lasting_since_ = lasting.empty() ? Duration::max() : std::min(lasting_since_, now);
  if (now - lasting_since_ > group_.limit()) return entangled(lasting, " (limit: TNT_TIMEOUT)");
  return {};
}

Status Watch::entangled(const Circle& circle, const char* limit) const {
  int rank = own_;
  for (const Wait& wait : circle) {
    if (wait.gradients != wait_.gradients)
      return group_.fail({Code::kMismatch, text(place(), "rank ", rank, " waits for ",
                                                wait.gradients ? "gradients" : "a blocking call",
                                                " meanwhile; give every rank the same number of batches and "
                                                "the same calls, and put no condition "
                                                "on its own rows or loss around either",
                                                limit)});
    rank = wait.rank - 1;
  }
  const int next = circle.front().rank - 1;
  if (wait_.gradients)
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

std::string Watch::place() const { return text("rank ", own_, " waits in ", what_, ": "); }

}  // namespace tarantella::collective
