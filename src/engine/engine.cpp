#include "engine/engine.h"

#include <algorithm>
#include <optional>

#include "collective/roll_call.h"
#include "collective/watch.h"

namespace tarantella::engine {
namespace {

constexpr Duration kIdle = 1s;  // also how often a resting rank shows that it lives
// Longer than ranks usually wait for one another: to be woken takes as long as to reduce a small network's gradients.
constexpr Duration kSpin = 2ms;

void spin_until_rung(const collective::Group& group, uint32_t seen) {
  const Deadline deadline = Deadline::after(kSpin);
  while (group.bell() == seen && !deadline.passed()) {
    std::this_thread::yield();
  }
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<transport::Memory> memory,
                                               collective::GroupOptions options, std::thread::id caller,
                                               collective::Group* parent) {
  auto group = collective::Group::create(std::move(memory), options, caller, parent);
  if (!group.ok()) return group.status();
  auto exchange = collective::Exchange::create(*group.value());
  if (!exchange.ok()) return exchange.status();
  group.value()->stand_alone();
  return std::unique_ptr<Engine>(new Engine(std::move(group).value(), std::move(exchange).value()));
}

Engine::Engine(std::shared_ptr<collective::Group> group, std::unique_ptr<collective::Exchange> exchange)
    : group_(std::move(group)), exchange_(std::move(exchange)), progress_([this] { run(); }) {}

Engine::~Engine() { close(); }

void Engine::close() {
  std::call_once(closed_, [this] {
    group_->close();
    stopping_.store(true);
    group_->ring_all();
    progress_.join();
    for (const auto& plan : plans()) plan->fail(group_->failure());
  });
}

Result<std::unique_ptr<Engine>> Engine::create_group(const std::vector<int>& ranks) {
  std::vector<uint64_t> numbers;
  for (const int rank : ranks) {
    const auto number = static_cast<uint64_t>(rank);
    if (rank < 0 || rank >= group_->size())
      return Status(Code::kInvalidArgument,
                    text("a group with rank ", rank, ": ranks are 0 to ", group_->size() - 1));
    if (std::find(numbers.begin(), numbers.end(), number) != numbers.end())
      return Status(Code::kInvalidArgument, text("a group with rank ", rank, " twice"));
    numbers.push_back(number);
  }
  if (ranks.empty()) return Status(Code::kInvalidArgument, "a group needs at least one rank");
  std::unique_ptr<transport::Memory> memory;
  TNT_RETURN_IF_ERROR(call([&](collective::Exchange& exchange) -> Status {
    Status alike = exchange.advance(
        {.operation = collective::Operation::kGroup, .count = numbers.size(), .counts = numbers});
    if (!alike.ok()) return alike;
    auto made = group_->memory().group(ranks);
    if (!made.ok()) return group_->fail(made.status());
    memory = std::move(made).value();
    return {};
  }));
  if (memory == nullptr) return std::unique_ptr<Engine>();
  return create(std::move(memory), group_->options(), group_->caller(), group_.get());
}

Result<std::shared_ptr<Plan>> Engine::add_plan(const std::string& name,
                                               const std::vector<TensorSpec>& tensors, size_t threshold) {
  std::shared_ptr<Plan> plan;
  TNT_RETURN_IF_ERROR(call([&](collective::Exchange& exchange) -> Status {
    auto created = Plan::create(exchange, name, tensors, threshold);
    if (!created.ok()) return created.status();
    plan = std::move(created).value();
    return {};
  }));
  const std::lock_guard lock(plans_mutex_);
  plans_.push_back(plan);
  return plan;
}

void Engine::remove_plan(const std::shared_ptr<Plan>& plan) {
  {
    const std::lock_guard lock(plans_mutex_);
    std::erase(plans_, plan);
  }
  plan->fail({Code::kInvalidArgument, "this plan was released"});
}

std::vector<std::shared_ptr<Plan>> Engine::plans() {
  const std::lock_guard lock(plans_mutex_);
  return plans_;
}

void Engine::run() {
  collective::RollCall roll_call(*group_);
  std::optional<collective::Watch> watch;
  int watched = -1;
  std::optional<uint32_t> spun;  // the bell when this last spun: once for each change
  while (true) {
    const uint32_t seen = group_->bell();  // first: to be stopped from here on is no sleep
    if (stopping_.load()) return;
    group_->beat();
    roll_call.look();
    const Status failure = group_->failure();
    int awaited = -1;
    std::shared_ptr<Plan> waiting;
    for (const auto& plan : plans()) {
      if (!failure.ok()) {
        plan->fail(failure);
        continue;
      }
      plan->advance();
      const int rank = plan->awaited_rank();
      if (rank < 0) continue;
      awaited = rank;
      waiting = plan;
    }
    if (awaited < 0) {
      watch.reset();
      group_->sleep_until_rung(seen, kIdle);
      continue;
    }
    if (waiting->all_submitted() && group_->own_cores() && spun != seen) {
      spin_until_rung(*group_, seen);
      spun = seen;
    }
    group_->sleep_until_rung(seen, collective::Group::kSlice);
    if (group_->bell() != seen || awaited != watched || waiting->awaited_rank() != awaited) {
      watch.reset();
      watched = awaited;
      continue;
    }
    if (!watch)
      watch.emplace(*group_, collective::WaitFor::kGradients, waiting->of_caller(), waiting->describe());
    if (const Status lost = watch->check(awaited); !lost.ok()) {
      for (const auto& plan : plans()) plan->fail(lost);
    }
  }
}

}  // namespace tarantella::engine
