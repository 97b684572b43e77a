#include "engine/context.h"

#include <algorithm>
#include <utility>

namespace tarantella::engine {
namespace {

/// Keeps the communicator for the progress thread: that thread may still be inside a library when the context is gone.
class Progress final : public Progressable {
 public:
  explicit Progress(std::shared_ptr<collective::Communicator> communicator)
      : communicator_(std::move(communicator)) {}
  PollHint advance() override {
    const auto interval = communicator_->progress();
    return interval ? PollHint{.within_check_interval = true, .max_poll_interval = *interval} : PollHint{};
  }

 private:
  const std::shared_ptr<collective::Communicator> communicator_;
};

}  // namespace

Result<std::unique_ptr<Context>> Context::create(std::unique_ptr<collective::Communicator> communicator) {
  auto thread = std::make_shared<ProgressThread>(communicator->group().share_rank_table());
  std::unique_ptr<Context> context(new Context(std::move(communicator), std::move(thread)));
  TNT_RETURN_IF_ERROR(context->call([](auto& comm) { return comm.barrier("the start of the job"); }));
  return context;
}

Context::Context(std::unique_ptr<collective::Communicator> communicator,
                 std::shared_ptr<ProgressThread> thread)
    : thread_(std::move(thread)),
      communicator_(std::move(communicator)),
      progress_(std::make_shared<Progress>(communicator_)),
      watchdog_(group()) {
  thread_->add(*this);
  thread_->add(progress_);
}

Context::~Context() { close(); }

void Context::close() {
  std::call_once(closed_, [this] {
    communicator_->close();
    thread_->remove(*progress_);
    thread_->remove(*this);
    watched_.reset();
    for (const auto& plan : plans()) plan->fail(group().failure());
  });
}

Result<std::unique_ptr<Context>> Context::split(const std::vector<int>& ranks) {
  std::unique_ptr<collective::Communicator> subset;
  TNT_RETURN_IF_ERROR(call([&](collective::Communicator& comm) -> Status {
    auto made = comm.split(ranks);
    if (!made.ok()) return made.status();
    subset = std::move(made).value();
    return {};
  }));
  if (subset == nullptr) return std::unique_ptr<Context>();
  return std::unique_ptr<Context>(new Context(std::move(subset), thread_));
}

Result<std::shared_ptr<Plan>> Context::add_plan(const std::string& name,
                                                const std::vector<TensorSpec>& tensors, size_t threshold,
                                                StepCheck step_check) {
  std::shared_ptr<Plan> plan;
  TNT_RETURN_IF_ERROR(call([&](collective::Communicator& comm) -> Status {
    auto created = Plan::create(comm, name, tensors, threshold, step_check);
    if (!created.ok()) return created.status();
    plan = std::move(created).value();
    return {};
  }));
  {
    const std::lock_guard lock(plans_mutex_);
    plans_.push_back(plan);
  }
  // A failure or a close that came before the push has told the other plans only.
  if (const Status lost = group().failure(); !lost.ok()) plan->fail(lost);
  return plan;
}

void Context::remove_plan(const std::shared_ptr<Plan>& plan) {
  {
    const std::lock_guard lock(plans_mutex_);
    std::erase(plans_, plan);
  }
  plan->fail({Code::kInvalidArgument, "this plan was released"});
}

Status Context::notify(const std::string& name, uint32_t value) {
  const std::lock_guard lock(call_mutex_);
  TNT_RETURN_IF_ERROR(group().failure());
  communicator_->notify(name, value);
  return {};
}

Result<uint32_t> Context::wait_notification(int from, const std::string& name) {
  const std::lock_guard lock(call_mutex_);
  TNT_RETURN_IF_ERROR(group().failure());
  return communicator_->wait_notification(from, name);
}

std::vector<std::shared_ptr<Plan>> Context::plans() {
  const std::lock_guard lock(plans_mutex_);
  return plans_;
}

Progressable::PollHint Context::advance() {
  watchdog_.check();
  const Status failure = group().failure();
  std::shared_ptr<Plan> waiting;
  std::optional<Plan::Awaited> awaited;
  PollHint hint;
  for (const auto& plan : plans()) {
    if (!failure.ok()) {
      plan->fail(failure);
      continue;
    }
    plan->advance();
    const auto found = plan->awaited();
    const bool spins = plan->only_waits() && group().dedicated_cores();
    if (!found) {
      hint.spins = hint.spins || (spins && !awaited);
      continue;
    }
    hint.spins = spins;
    awaited = found;
    waiting = plan;
  }
  if (!awaited) {
    watched_.reset();
    return hint;
  }
  hint.within_check_interval = true;
  if (const Status lost = check_stall(waiting, *awaited); !lost.ok()) {
    for (const auto& plan : plans()) plan->fail(lost);
  }
  return hint;
}

Status Context::check_stall(const std::shared_ptr<Plan>& plan, const Plan::Awaited& awaited) {
  const auto now = Clock::now();
  if (!watched_ || watched_->plan.lock() != plan || watched_->awaited != awaited) {
    watched_.reset();  // before another wait is shown
    watched_.emplace(plan, awaited, now);
    return {};
  }
  if (now - watched_->checked_at < collective::NodeGroup::kCheckInterval) return {};
  watched_->checked_at = now;
  if (!watched_->detector) {
    using collective::WaitKind;
    const WaitKind kind = plan->is_exclusive() ? WaitKind::kExclusive : WaitKind::kGradients;
    watched_->detector.emplace(group(), kind, plan->made_by_creator_thread(), plan->describe(awaited));
  }
  return watched_->detector->check(awaited.rank);
}

}  // namespace tarantella::engine
