#include "engine/engine.h"

#include <algorithm>
#include <optional>

#include "collective/group.h"

namespace tarantella::engine {
namespace {

constexpr Duration kIdle = 1s;  // also how often an idle rank shows that it runs
// Longer than ranks usually wait for one another: waking up takes as long as reducing a small network's gradients.
constexpr Duration kSpin = 2ms;
constexpr int kEagerPolls = 200;  // of bytes, without a sleep

Duration longest_sleep(Driven::Need need) {
  return std::min(need.pause, need.looks ? collective::Group::kSlice : kIdle);
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
  Driven::Need need;
  std::unique_lock lock(mutex_);
  // Not locked during advance(), whose callbacks may remove any of them.
  const std::vector<Driven*> all = driven_;
  for (Driven* each : all) {
    if (std::find(driven_.begin(), driven_.end(), each) == driven_.end()) continue;
    advancing_ = each;
    lock.unlock();
    const Driven::Need its = each->advance();
    need = {need.looks || its.looks, need.spins || its.spins, std::min(need.pause, its.pause)};
    lock.lock();
    advancing_ = nullptr;
    advanced_.notify_all();
  }
  return need;
}

void Engine::run() {
  std::optional<uint32_t> last;  // the bell at the last look
  Deadline spinning = Deadline::after(kSpin);
  int polls = 0;  // in a row
  while (true) {
    const uint32_t seen = members_->bell();  // first: to be stopped from here on is no sleep
    if (stopping_.load()) return;
    members_->beat();
    const Driven::Need need = advance_all();
    if (last != seen) spinning = Deadline::after(kSpin);
    last = seen;
    const bool awaits_bytes = need.pause != kForever;
    if (!awaits_bytes) polls = 0;
    const bool spins = need.spins && (need.looks || awaits_bytes) && !spinning.passed();
    if (awaits_bytes && (spins || ++polls < kEagerPolls)) {
      std::this_thread::yield();
      continue;
    }
    while (spins && members_->bell() == seen && !spinning.passed()) std::this_thread::yield();
    members_->sleep_until_rung(seen, longest_sleep(need));
  }
}

}  // namespace tarantella::engine
