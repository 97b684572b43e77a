// Contexts: creation, failure and destruction, groups, questions where a rank's program is, one-sided notifications.

#include "capi/context.h"

#include <thread>

#include "capi/connect.h"
#include "capi/contexts.h"
#include "capi/plans.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;
using engine::Context;

namespace {

Status check_options(const tnt_options* options) {
  if (options == nullptr || options->job == nullptr) return invalid("options and job must not be NULL");
  if (!(options->meet_timeout > 0) || !(options->stuck_timeout >= 2) || !(options->failure_delay >= 0) ||
      !(options->stall_timeout >= 0)) {
    return invalid("timeouts must be positive, and that of a stuck rank (TNT_TIMEOUT) at least 2 seconds");
  }
  return {};
}

Status check_notifier(const Context& engine_context, int rank) {
  if (rank >= 0 && rank < engine_context.size() && rank != engine_context.rank()) return {};
  return invalid(text("a rank cannot wait for a notification of rank ", rank, " of ", engine_context.size()));
}

}  // namespace

extern "C" {

tnt_code tnt_context_create(const tnt_options* options, tnt_context** context) {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_options(options));
    collective::GroupOptions group_options;
    if (options->warn_every > 0) group_options.warn_every = from_seconds(options->warn_every);
    group_options.stuck_timeout = from_seconds(options->stuck_timeout);
    if (options->stall_timeout > 0) group_options.stall = from_seconds(options->stall_timeout);
    group_options.failure_delay = from_seconds(options->failure_delay);
    auto communicator = connect(*options, group_options);
    if (!communicator.ok()) return communicator.status();
    auto made = Context::create(std::move(communicator).value());
    if (!made.ok()) return made.status();
    *context = new tnt_context(std::move(made).value());
    contexts().add(*context);
    return {};
  });
}

void tnt_context_close(tnt_context* context) {
  // in a forked child the parent's threads do not exist: nothing can be joined
  if (context == nullptr || context->fork_count != fork_count()) return;
  (void)guarded([&]() -> Status {
    const Inside inside(*context);
    context->context->close();
    context->worker.close();
    const std::lock_guard lock(context->terminator_mutex);
    context->stacks.reset();
    context->terminator.reset();
    return {};
  });
}

void tnt_context_destroy(tnt_context* context) {
  if (context == nullptr || context->fork_count != fork_count()) return;
  tnt_context_close(context);
  contexts().remove(context);
  while (context->calls.load(std::memory_order_acquire) != 0) std::this_thread::sleep_for(1ms);
  (void)guarded([&]() -> Status {
    plans().release_all(*context->context);
    return {};
  });
  delete context;
}

tnt_code tnt_abort(tnt_context* context, const char* reason, int exit_code) {
  return on_context(context, [&](Context& engine_context) -> Status {
    auto& group = engine_context.group();
    (void)group.fail(
        {Code::kPeerLost, text("rank ", group.job_rank(group.rank()), " failed: ", text_of(reason))},
        exit_code);
    return {};
  });
}

int tnt_exit_code(const tnt_context* context) {
  return context == nullptr ? -1 : context->context->group().exit_code();
}

tnt_code tnt_end_with_job(tnt_context* context) {
  return on_context(context, [&](Context& engine_context) -> Status {
    const std::lock_guard lock(context->terminator_mutex);
    if (context->terminator == nullptr)
      context->terminator = std::make_unique<FailedJobTerminator>(engine_context);
    return {};
  });
}

tnt_code tnt_show_stacks(tnt_context* context, int signal, int descriptor) {
  return on_context(context, [&](Context& engine_context) -> Status {
    const std::lock_guard lock(context->terminator_mutex);
    context->stacks = std::make_unique<Stacks>(engine_context, signal, descriptor);
    return {};
  });
}

tnt_code tnt_on_sigterm(int exit_code) {
  return guarded([&] { return on_sigterm(exit_code); });
}

tnt_code tnt_await_location_query(tnt_context* context, uint32_t* seen) {
  return on_context(
      context, [&](Context& engine_context) { return engine_context.group().await_location_query(*seen); });
}

tnt_code tnt_report_location(tnt_context* context, const char* place) {
  return on_context(context, [&](Context& engine_context) -> Status {
    engine_context.group().report_location(name_of(place));
    return {};
  });
}

tnt_code tnt_failure(tnt_context* context) {
  return on_context(context, [](Context& engine_context) { return engine_context.group().failure(); });
}

tnt_code tnt_context_create_group(tnt_context* context, const int* ranks, size_t count, tnt_context** group) {
  return on_context(context, [&](Context& engine_context) -> Status {
    auto created = engine_context.split({ranks, ranks + count});
    if (!created.ok()) return created.status();
    *group = created.value() == nullptr ? nullptr : new tnt_context(std::move(created).value());
    if (*group != nullptr) contexts().add(*group);
    return {};
  });
}

uint64_t tnt_context_number(const tnt_context* context) { return context == nullptr ? 0 : context->id; }

int tnt_context_rank(const tnt_context* context) {
  return context == nullptr ? -1 : context->context->rank();
}

int tnt_context_size(const tnt_context* context) {
  return context == nullptr ? -1 : context->context->size();
}

int tnt_context_job_rank(const tnt_context* context, int rank) {
  if (context == nullptr || rank < 0 || rank >= context->context->size()) return -1;
  return context->context->job_rank(rank);
}

tnt_code tnt_notify(tnt_context* context, const char* name, uint32_t result) {
  return on_context(context,
                    [&](Context& engine_context) { return engine_context.notify(name_of(name), result); });
}

tnt_code tnt_wait_notification(tnt_context* context, int rank, const char* name, uint32_t* result) {
  return on_context(context, [&](Context& engine_context) -> Status {
    TNT_RETURN_IF_ERROR(check_notifier(engine_context, rank));
    const timeline::Span span(timeline::Kind::kExchange, text_of(name));
    const auto notified = engine_context.wait_notification(rank, name_of(name));
    if (!notified.ok()) return notified.status();
    *result = notified.value();
    return {};
  });
}

tnt_code tnt_find_notification(tnt_context* context, int rank, const char* name, int* found,
                               uint32_t* result) {
  return on_context(context, [&](Context& engine_context) -> Status {
    TNT_RETURN_IF_ERROR(check_notifier(engine_context, rank));
    const auto notified = engine_context.find_notification(rank, name_of(name));
    if (!notified.ok()) return notified.status();
    *found = notified.value().has_value() ? 1 : 0;
    *result = notified.value().value_or(0);
    return {};
  });
}

}  // extern "C"
