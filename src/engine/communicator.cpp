#include "engine/communicator.h"

#include <algorithm>

namespace tarantella::engine {

Result<std::unique_ptr<Communicator>> Communicator::create(std::unique_ptr<transport::Memory> memory,
                                                           collective::GroupOptions options) {
  return create(std::move(memory), options, std::this_thread::get_id(), nullptr);
}

Result<std::unique_ptr<Communicator>> Communicator::create(std::unique_ptr<transport::Memory> memory,
                                                           collective::GroupOptions options,
                                                           std::thread::id caller, Communicator* parent) {
  auto group = collective::Group::create(std::move(memory), options, caller,
                                         parent == nullptr ? nullptr : parent->group_.get());
  if (!group.ok()) return group.status();
  auto stage = collective::Stage::create(*group.value());
  if (!stage.ok()) return stage.status();
  group.value()->stand_alone();
  auto engine =
      parent == nullptr ? std::make_shared<Engine>(group.value()->share_members()) : parent->engine_;
  return std::unique_ptr<Communicator>(
      new Communicator(std::move(group).value(), std::move(stage).value(), std::move(engine)));
}

Communicator::Communicator(std::shared_ptr<collective::Group> group, std::unique_ptr<collective::Stage> stage,
                           std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)), group_(std::move(group)), stage_(std::move(stage)), roll_call_(*group_) {
  engine_->add(*this);
}

Communicator::~Communicator() { close(); }

void Communicator::close() {
  std::call_once(closed_, [this] {
    group_->close();
    engine_->remove(*this);
    watched_.reset();
    for (const auto& plan : plans()) plan->fail(group_->failure());
  });
}

Status Communicator::check_group(const std::vector<int>& ranks, size_t size) {
  if (ranks.empty()) return {Code::kInvalidArgument, "a group needs at least one rank"};
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank) {
    if (*rank < 0 || static_cast<size_t>(*rank) >= size)
      return {Code::kInvalidArgument, text("a group with rank ", *rank, ": ranks are 0 to ", size - 1)};
    if (std::find(ranks.begin(), rank, *rank) != rank)
      return {Code::kInvalidArgument, text("a group with rank ", *rank, " twice")};
  }
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::create_group(const std::vector<int>& ranks) {
  TNT_RETURN_IF_ERROR(check_group(ranks, stage_->size()));
  const std::vector<uint64_t> numbers(ranks.begin(), ranks.end());
  std::unique_ptr<transport::Memory> memory;
  TNT_RETURN_IF_ERROR(call([&](collective::Stage& stage) -> Status {
    Status alike =
        stage.agree({.operation = collective::Operation::kGroup, .count = numbers.size(), .counts = numbers});
    if (!alike.ok()) return alike;
    auto made = group_->memory().group(ranks);
    if (!made.ok()) return group_->fail_in("the creation of a group", made.status());
    memory = std::move(made).value();
    return {};
  }));
  if (memory == nullptr) return std::unique_ptr<Communicator>();
  return create(std::move(memory), group_->options(), group_->caller(), this);
}

Result<std::shared_ptr<Plan>> Communicator::add_plan(const std::string& name,
                                                     const std::vector<TensorSpec>& tensors, size_t threshold,
                                                     Numbers numbers, collective::across::Across* across) {
  std::shared_ptr<Plan> plan;
  TNT_RETURN_IF_ERROR(call([&](collective::Stage& stage) -> Status {
    auto created = Plan::create(AllRanks(stage, across), name, tensors, threshold, numbers);
    if (!created.ok()) return created.status();
    plan = std::move(created).value();
    return {};
  }));
  {
    const std::lock_guard lock(plans_mutex_);
    plans_.push_back(plan);
  }
  // A failure or a close that came before the push has told the other plans only.
  if (const Status lost = group_->failure(); !lost.ok()) plan->fail(lost);
  return plan;
}

void Communicator::remove_plan(const std::shared_ptr<Plan>& plan) {
  {
    const std::lock_guard lock(plans_mutex_);
    std::erase(plans_, plan);
  }
  plan->fail({Code::kInvalidArgument, "this plan was released"});
}

std::vector<std::shared_ptr<Plan>> Communicator::plans() {
  const std::lock_guard lock(plans_mutex_);
  return plans_;
}

Driven::Need Communicator::advance() {
  roll_call_.look();
  const Status failure = group_->failure();
  std::shared_ptr<Plan> waiting;
  std::optional<Plan::Awaited> awaited;
  Need need;
  for (const auto& plan : plans()) {
    if (!failure.ok()) {
      plan->fail(failure);
      continue;
    }
    plan->advance();
    const auto found = plan->awaited();
    const bool spins = plan->only_waits() && group_->own_cores();
    if (!found) {
      need.spins = need.spins || (spins && !awaited);
      continue;
    }
    need.spins = spins;
    awaited = found;
    waiting = plan;
  }
  if (!awaited) {
    watched_.reset();
    return need;
  }
  need.looks = true;
  if (const Status lost = watch(waiting, *awaited); !lost.ok()) {
    for (const auto& plan : plans()) plan->fail(lost);
  }
  return need;
}

Status Communicator::watch(const std::shared_ptr<Plan>& plan, const Plan::Awaited& awaited) {
  const auto now = Clock::now();
  if (!watched_ || watched_->plan.lock() != plan || watched_->awaited != awaited) {
    watched_.reset();  // before another wait is shown
    watched_.emplace(plan, awaited, now);
    return {};
  }
  if (now - watched_->looked < collective::Group::kSlice) return {};
  watched_->looked = now;
  if (!watched_->watch) {
    using collective::WaitFor;
    const WaitFor kind = plan->is_last() ? WaitFor::kCall : WaitFor::kGradients;
    watched_->watch.emplace(*group_, kind, plan->of_caller(), plan->describe(awaited));
  }
  return watched_->watch->check(awaited.rank);
}

}  // namespace tarantella::engine
