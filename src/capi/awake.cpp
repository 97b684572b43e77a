#include "capi/awake.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "capi/context.h"
#include "runtime/awake/permission.h"
#include "runtime/cpu_mask.h"
#include "timeline/timeline.h"

namespace tarantella::capi {

Status KeptAwake::begin(bool own_cores, bool several) {
  const std::lock_guard lock(mutex_);
  if (!decision_) decision_ = start(own_cores, several);
  if (!decision_->ok()) return *decision_;
  ++calls_;
  if (awake_) awake_->on();
  return {};
}

Status KeptAwake::start(bool own_cores, bool several) {
  if (!own_cores) return {Code::kSystem, "ranks share cores"};
  runtime::CpuMask mask;
  if (!mask.read()) return Status::system("sched_getaffinity", errno);
  const std::vector<int> cpus = mask.cpus();
  if (cpus.size() > 1 && !several) return {Code::kSystem, text("the rank has ", cpus.size(), " CPUs")};
  TNT_RETURN_IF_ERROR(runtime::permit_awake(cpus));
  auto awake = runtime::Awake::create(cpus);
  if (!awake.ok()) return awake.status();
  awake_ = std::move(awake).value();
  return {};
}

void KeptAwake::end() {
  const std::lock_guard lock(mutex_);
  calls_ = std::max(calls_ - 1, 0);
  if (calls_ > 0 || !awake_) return;
  awake_->off();
  if (timeline::Timeline* const timeline = timeline::current().load(std::memory_order_acquire))
    timeline->awake(awake_->cpu_time().count());
}

void KeptAwake::close() {
  const std::lock_guard lock(mutex_);
  if (!decision_) decision_ = Status(Code::kSystem, "the context is closed");
  if (!awake_) return;
  used_ = awake_->cpu_time();
  awake_.reset();
}

Duration KeptAwake::used() {
  const std::lock_guard lock(mutex_);
  return awake_ ? awake_->cpu_time() : used_;
}

}  // namespace tarantella::capi

using namespace tarantella;  // the rest is its C interface
using namespace tarantella::capi;

extern "C" {

tnt_code tnt_keep_awake(tnt_context* context, int several) {
  return on_context(context, [&](auto& communicator) {
    return context->awake.begin(communicator.group().own_cores(), several != 0);
  });
}

tnt_code tnt_let_sleep(tnt_context* context) {
  return on_context(context, [&](auto&) -> Status {
    context->awake.end();
    return {};
  });
}

tnt_code tnt_awake_seconds(tnt_context* context, double* seconds) {
  return on_context(context, [&](auto&) -> Status {
    *seconds = in_seconds(context->awake.used());
    return {};
  });
}

}  // extern "C"
