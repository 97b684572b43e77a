#include "engine/engine.h"

#include <algorithm>
#include <optional>

#include "collective/group.h"

namespace tarantella::engine {
namespace {

constexpr Duration kIdle = 1s;  // also how often an idle rank shows that it runs
// Longer than ranks usually wait for one another: waking up takes as long as reducing a small network's gradients.
constexpr Duration kSpin = 2ms;
// Between two polls, after so many without a pause.
constexpr Duration kPollPause = 50us;
constexpr int kEagerPolls = 200;

void spin_until_rung(const collective::Members& members, uint32_t seen) {
  const Deadline deadline = Deadline::after(kSpin);
  while (members.bell() == seen && !deadline.passed()) {
    std::this_thread::yield();
  }
}

Duration pause_after(Driven::Need need, int polls) {
  switch (need) {
    case Driven::Need::kNothing:
      return kIdle;
    case Driven::Need::kLooks:
    case Driven::Need::kSpins:
      break;
    case Driven::Need::kPolls:
      return polls < kEagerPolls ? Duration::zero() : kPollPause;
  }
  return collective::Group::kSlice;
}

}  // namespace

Engine::Engine(std::shared_ptr<collective::Members> members)
    : members_(std::move(members)), thread_([this] { run(); }) {}

Engine::~Engine() {
  stopping_.store(true);
  members_->ring(members_->rank());
  thread_.join();
}

void Engine::add(Driven& driven) {
  {
    const std::lock_guard lock(mutex_);
    driven_.push_back(&driven);
  }
  members_->ring(members_->rank());
}

void Engine::remove(Driven& driven) {
  std::unique_lock lock(mutex_);
  std::erase(driven_, &driven);
  if (std::this_thread::get_id() == thread_.get_id()) return;
  advanced_.wait(lock, [&] { return advancing_ != &driven; });
}

Driven::Need Engine::advance_all() {
  auto need = Driven::Need::kNothing;
  std::unique_lock lock(mutex_);
  // Not locked during advance(), whose callbacks may remove any of them.
  const std::vector<Driven*> all = driven_;
  for (Driven* each : all) {
    if (std::find(driven_.begin(), driven_.end(), each) == driven_.end()) continue;
    advancing_ = each;
    lock.unlock();
    need = std::max(need, each->advance());
    lock.lock();
    advancing_ = nullptr;
    advanced_.notify_all();
  }
  return need;
}

void Engine::run() {
  int polls = 0;                 // in a row
  std::optional<uint32_t> spun;  // the bell when this last spun: once for each change
  while (true) {
    const uint32_t seen = members_->bell();  // first: to be stopped from here on is no sleep
    if (stopping_.load()) return;
    members_->beat();
    const Driven::Need need = advance_all();
    if (need == Driven::Need::kSpins && spun != seen) {
      spin_until_rung(*members_, seen);
      spun = seen;
    }
    polls = need == Driven::Need::kPolls ? polls + 1 : 0;
    const Duration pause = pause_after(need, polls);
    if (pause == Duration::zero()) {
      std::this_thread::yield();
    } else {
      members_->sleep_until_rung(seen, pause);
    }
  }
}

}  // namespace tarantella::engine
