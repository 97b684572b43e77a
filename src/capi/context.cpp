// Contexts: creation, failure and destruction, groups, questions where a rank's program is, one-sided posts.

#include "capi/context.h"

#include <thread>

#include "capi/connect.h"
#include "capi/contexts.h"
#include "capi/plans.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;
using collective::GroupOptions;
using engine::Cluster;
using engine::Communicator;

namespace {

Status check_options(const tnt_options* options) {
  if (options == nullptr || options->job == nullptr) return invalid("options and job must not be NULL");
  if (!(options->meet_timeout > 0) || !(options->stuck_timeout >= 2) || !(options->grace >= 0) ||
      !(options->stall_timeout >= 0)) {
    return invalid("timeouts must be positive, and that of a stuck rank (TNT_TIMEOUT) at least 2 seconds");
  }
  return {};
}

}  // namespace

extern "C" {

tnt_code tnt_context_create(const tnt_options* options, tnt_context** context) {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_options(options));
    GroupOptions group_options;
    if (options->warn_every > 0) group_options.warn_every = from_seconds(options->warn_every);
    group_options.timeout = from_seconds(options->stuck_timeout);
    if (options->stall_timeout > 0) group_options.stall = from_seconds(options->stall_timeout);
    group_options.grace = from_seconds(options->grace);
    auto connection = connect(*options);
    if (!connection.ok()) return connection.status();
    auto& [memory, nodes, wire] = connection.value();
    if (nodes) {
      auto cluster = Cluster::create(std::move(memory), std::move(wire), *nodes, group_options,
                                     {.silence = group_options.timeout});
      if (!cluster.ok()) return cluster.status();
      *context = new tnt_context(std::move(cluster).value());
    } else {
      auto communicator = Communicator::create(std::move(memory), group_options);
      if (!communicator.ok()) return communicator.status();
      *context = new tnt_context(std::move(communicator).value());
    }
    contexts().add(*context);
    return {};
  });
}

void tnt_context_close(tnt_context* context) {
  // in a forked child the parent's threads do not exist: nothing can be joined
  if (context == nullptr || context->forks != forks()) return;
  (void)guarded([&]() -> Status {
    const Inside inside(*context);
    {
      const std::lock_guard lock(context->ending_mutex);
      context->stacks.reset();
      context->ending.reset();
    }
    context->on_all_ranks([](auto& ranks) { ranks.close(); });
    context->worker.close();
    context->awake.close();
    return {};
  });
}

void tnt_context_destroy(tnt_context* context) {
  if (context == nullptr || context->forks != forks()) return;
  tnt_context_close(context);
  contexts().remove(context);
  while (context->calls.load(std::memory_order_acquire) != 0) std::this_thread::sleep_for(1ms);
  (void)guarded([&]() -> Status {
    plans().release_all(*context->communicator);
    return {};
  });
  delete context;
}

tnt_code tnt_abort(tnt_context* context, const char* reason, int exit_code) {
  return on_context(context, [&](auto& communicator) -> Status {
    auto& group = communicator.group();
    (void)group.fail(
        {Code::kPeerLost, text("rank ", group.job_rank(group.rank()), " failed: ", text_of(reason))},
        exit_code);
    return {};
  });
}

int tnt_exit_code(const tnt_context* context) {
  return context == nullptr ? -1 : context->communicator->group().exit_code();
}

tnt_code tnt_end_with_job(tnt_context* context) {
  return on_context(context, [&](auto& communicator) -> Status {
    const std::lock_guard lock(context->ending_mutex);
    if (context->ending == nullptr)
      context->ending = std::make_unique<Ending>(communicator, context->cluster.get());
    return {};
  });
}

tnt_code tnt_show_stacks(tnt_context* context, int signal, int descriptor) {
  return on_context(context, [&](auto& communicator) -> Status {
    const std::lock_guard lock(context->ending_mutex);
    context->stacks = std::make_unique<Stacks>(communicator, signal, descriptor);
    return {};
  });
}

tnt_code tnt_on_sigterm(int exit_code) {
  return guarded([&] { return on_sigterm(exit_code); });
}

tnt_code tnt_await_question(tnt_context* context, uint32_t* seen) {
  return on_context(context, [&](auto& communicator) { return communicator.group().await_question(*seen); });
}

tnt_code tnt_tell_place(tnt_context* context, const char* place) {
  return on_context(context, [&](auto& communicator) -> Status {
    communicator.group().tell_place(name_of(place));
    return {};
  });
}

tnt_code tnt_failure(tnt_context* context) {
  return on_context(context, [](auto& communicator) { return communicator.group().failure(); });
}

tnt_code tnt_context_create_group(tnt_context* context, const int* ranks, size_t count, tnt_context** group) {
  return on_context(context, [&](auto&) -> Status {
    const std::vector<int> numbers(ranks, ranks + count);
    auto created = context->on_all_ranks([&](auto& all) { return all.create_group(numbers); });
    if (!created.ok()) return created.status();
    *group = created.value() == nullptr ? nullptr : new tnt_context(std::move(created).value());
    if (*group != nullptr) contexts().add(*group);
    return {};
  });
}

uint64_t tnt_context_number(const tnt_context* context) { return context == nullptr ? 0 : context->number; }

int tnt_context_rank(const tnt_context* context) { return context == nullptr ? -1 : context->rank(); }

int tnt_context_size(const tnt_context* context) { return context == nullptr ? -1 : context->size(); }

int tnt_context_job_rank(const tnt_context* context, int rank) {
  if (context == nullptr || rank < 0 || rank >= context->size()) return -1;
  return context->on_all_ranks([rank](auto& ranks) { return ranks.job_rank(rank); });
}

tnt_code tnt_post(tnt_context* context, const char* name, uint32_t result) {
  return on_context(context, [&](auto& communicator) {
    return communicator.call([&](auto&) -> Status {
      context->on_all_ranks([&](auto& ranks) { ranks.post(name_of(name), result); });
      return {};
    });
  });
}

tnt_code tnt_wait_posted(tnt_context* context, int rank, const char* name, uint32_t* result) {
  return on_context(context, [&](auto& communicator) {
    return communicator.call([&](auto&) -> Status {
      if (rank < 0 || rank >= context->size() || rank == context->rank()) {
        return invalid(text("a rank cannot wait for a post of rank ", rank, " of ", context->size()));
      }
      const timeline::Span span(timeline::Kind::kExchange, text_of(name));
      const auto posted =
          context->on_all_ranks([&](auto& ranks) { return ranks.await_post(rank, name_of(name)); });
      if (!posted.ok()) return posted.status();
      *result = posted.value();
      return {};
    });
  });
}

tnt_code tnt_find_posted(tnt_context* context, int rank, const char* name, int* found, uint32_t* result) {
  return on_context(context, [&](auto&) -> Status {
    if (rank < 0 || rank >= context->size() || rank == context->rank()) {
      return invalid(text("a rank cannot wait for a post of rank ", rank, " of ", context->size()));
    }
    const auto posted =
        context->on_all_ranks([&](auto& ranks) { return ranks.find_post(rank, name_of(name)); });
    if (!posted.ok()) return posted.status();
    *found = posted.value().has_value() ? 1 : 0;
    *result = posted.value().value_or(0);
    return {};
  });
}

}  // extern "C"
