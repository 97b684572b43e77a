// tarantella.h over the engine: handles, error codes, and the last barrier for exceptions.

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/forks.h"
#include "capi/plans.h"
#include "collective/operations.h"
#include "collective/shared_buffer.h"
#include "engine/communicator.h"
#include "tarantella/tarantella.h"
#include "transport/shm/shm_memory.h"

using tarantella::Code;
using tarantella::Deadline;
using tarantella::DType;
using tarantella::Reduction;
using tarantella::Status;
using tarantella::collective::Stage;
using std::chrono_literals::operator""ms;

struct tnt_context {
  explicit tnt_context(std::unique_ptr<tarantella::engine::Communicator> made)
      : communicator(std::move(made)) {}

  const std::shared_ptr<tarantella::engine::Communicator>
      communicator;  ///< a release() of a plan may outlast the context
  std::vector<tnt_plan> plans;
  std::mutex mutex;
  const int forks = tarantella::forks();
  std::atomic<int> calls{0};  ///< that are inside, on any thread
};

struct tnt_buffer {
  std::unique_ptr<tarantella::collective::SharedBuffer> memory;
  tnt_context* context;
};

/// What a tnt_memory keeps alive.
struct tnt_memory {
  std::shared_ptr<void> owner;
};

namespace {

thread_local std::string last_error;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

tnt_code report(const Status& status) {
  last_error = status.message();
  return static_cast<tnt_code>(status.code());
}

/// Runs `body`, which returns a Status, and turns whatever comes of it into a code.
template <typename Body>
tnt_code guarded(Body body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report({Code::kOutOfMemory, "out of memory"});
  } catch (const std::exception& error) {
    return report({Code::kSystem, tarantella::text("unexpected error in the core: ", error.what())});
  }
}

Status invalid(const std::string& message) { return {Code::kInvalidArgument, message}; }

Status check_process(bool own) {
  if (own) return {};
  return invalid("a forked child of a rank takes no part in the job; exchange data in the rank itself");
}

/// As guarded(), for calls on a plan.
template <typename Body>
tnt_code on_plan(tnt_plan number, Body body) noexcept {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_process(tarantella::capi::plans().usable()));
    const auto plan = tarantella::capi::plans().find(number);
    if (plan == nullptr)
      return invalid(tarantella::text("there is no plan ", number, "; was its context closed?"));
    return body(*plan);
  });
}

/// A call on a context, which lives as long as one is inside.
class Inside {
 public:
  explicit Inside(tnt_context& context) : context_(context) {
    context_.calls.fetch_add(1, std::memory_order_acquire);
  }
  ~Inside() { context_.calls.fetch_sub(1, std::memory_order_release); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  tnt_context& context_;
};

/// As guarded(), for calls on a context.
template <typename Body>
tnt_code on_context(tnt_context* context, Body body) noexcept {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("the context is NULL");
    TNT_RETURN_IF_ERROR(check_process(context->forks == tarantella::forks()));
    const Inside inside(*context);
    return body(*context->communicator);
  });
}

/// As guarded(), for blocking collectives.
template <typename Body>
tnt_code collective(tnt_context* context, Body body) noexcept {
  return on_context(context, [&](auto& communicator) { return communicator.call(body); });
}

std::string_view text_of(const char* name) { return name == nullptr ? "" : name; }

std::string name_of(const char* name) { return name == nullptr ? "" : name; }

tarantella::engine::TensorSpec spec_of(const tnt_tensor& tensor) {
  return {name_of(tensor.name),
          static_cast<DType>(tensor.dtype),
          {tensor.shape, tensor.shape + tensor.dimensions}};
}

Status check_spec(const tarantella::engine::TensorSpec& spec) {
  if (!is_valid(spec.dtype)) return invalid(tarantella::text("tensor ", spec.name, " has an unknown dtype"));
  constexpr uint64_t kMost = 1'000'000'000'000'000;  // bytes; far above any machine, far below an overflow
  uint64_t bytes = size_of(spec.dtype);
  for (const int64_t extent : spec.shape) {
    const auto count = static_cast<uint64_t>(extent);
    if (extent < 0 || (count != 0 && bytes > kMost / count)) {
      return invalid(tarantella::text("tensor ", spec.name, " has an impossible shape"));
    }
    bytes *= count;
  }
  return {};
}

Status check_options(const tnt_options* options) {
  if (options == nullptr || options->job == nullptr) return invalid("options and job must not be NULL");
  if (!(options->meet_timeout > 0) || !(options->stuck_timeout >= 2) || !(options->grace >= 0)) {
    return invalid("timeouts must be positive; that for a stuck rank (TNT_TIMEOUT) at least 2 seconds");
  }
  return {};
}

}  // namespace

extern "C" {

const char* tnt_last_error(void) { return last_error.c_str(); }

const char* tnt_version(void) { return TARANTELLA_VERSION; }

tnt_code tnt_context_create(const tnt_options* options, tnt_context** context) {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_options(options));
    tarantella::collective::GroupOptions group_options;
    if (options->warn_every > 0) group_options.warn_every = tarantella::from_seconds(options->warn_every);
    auto memory = tarantella::transport::make_shm_memory(
        options->job, options->rank, options->size,
        Deadline::after(tarantella::from_seconds(options->meet_timeout)),
        {.warn_every = group_options.warn_every,
         .grace = tarantella::from_seconds(options->grace),
         .ended = tarantella::runtime::Ended::inherited(options->size)});
    if (!memory.ok()) return memory.status();
    group_options.timeout = tarantella::from_seconds(options->stuck_timeout);
    group_options.grace = tarantella::from_seconds(options->grace);
    auto communicator = tarantella::engine::Communicator::create(std::move(memory).value(), group_options);
    if (!communicator.ok()) return communicator.status();
    *context = new tnt_context(std::move(communicator).value());
    return {};
  });
}

void tnt_context_close(tnt_context* context) {
  // in a forked child the parent's threads do not exist: nothing can be joined
  if (context == nullptr || context->forks != tarantella::forks()) return;
  (void)guarded([&]() -> Status {
    const Inside inside(*context);
    context->communicator->close();
    return {};
  });
}

void tnt_context_destroy(tnt_context* context) {
  if (context == nullptr || context->forks != tarantella::forks()) return;
  tnt_context_close(context);
  while (context->calls.load(std::memory_order_acquire) != 0) std::this_thread::sleep_for(1ms);
  for (const tnt_plan plan : context->plans) (void)tnt_plan_release(plan);
  delete context;
}

tnt_code tnt_abort(tnt_context* context, const char* reason) {
  return on_context(context, [&](auto& communicator) -> Status {
    auto& group = communicator.group();
    (void)group.fail({Code::kPeerLost,
                      tarantella::text("rank ", group.job_rank(group.rank()), " failed: ", text_of(reason))});
    return {};
  });
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
  return on_context(context, [&](auto& communicator) -> Status {
    auto created = communicator.create_group({ranks, ranks + count});
    if (!created.ok()) return created.status();
    *group = created.value() == nullptr ? nullptr : new tnt_context(std::move(created).value());
    return {};
  });
}

int tnt_context_rank(const tnt_context* context) {
  return context == nullptr ? -1 : context->communicator->group().rank();
}

int tnt_context_size(const tnt_context* context) {
  return context == nullptr ? -1 : context->communicator->group().size();
}

int tnt_context_job_rank(const tnt_context* context, int rank) {
  if (context == nullptr || rank < 0 || rank >= context->communicator->group().size()) return -1;
  return context->communicator->group().job_rank(rank);
}

tnt_code tnt_allreduce(tnt_context* context, const void* input, void* output, size_t count, tnt_dtype dtype,
                       tnt_reduction reduction, const char* name) {
  return collective(context, [&](Stage& stage) {
    return tarantella::collective::allreduce(stage, input, output, count, static_cast<DType>(dtype),
                                             static_cast<Reduction>(reduction), text_of(name));
  });
}

tnt_code tnt_reduce_scatter(tnt_context* context, const void* input, void* output, size_t count,
                            tnt_dtype dtype, tnt_reduction reduction, const char* name) {
  return collective(context, [&](Stage& stage) {
    return tarantella::collective::reduce_scatter(stage, input, output, count, static_cast<DType>(dtype),
                                                  static_cast<Reduction>(reduction), text_of(name));
  });
}

tnt_code tnt_broadcast(tnt_context* context, void* data, size_t count, tnt_dtype dtype, int root,
                       const char* name) {
  return collective(context, [&](Stage& stage) {
    return tarantella::collective::broadcast(stage, data, count, static_cast<DType>(dtype), root,
                                             text_of(name));
  });
}

tnt_code tnt_allgather(tnt_context* context, const void* input, void* output, const uint64_t* counts,
                       tnt_dtype dtype, const char* name) {
  return collective(context, [&](Stage& stage) {
    return tarantella::collective::allgather(stage, input, output, {counts, stage.size()},
                                             static_cast<DType>(dtype), text_of(name));
  });
}

tnt_code tnt_alltoall(tnt_context* context, const void* input, const uint64_t* send_counts, void* output,
                      const uint64_t* receive_counts, tnt_dtype dtype, const char* name) {
  return collective(context, [&](Stage& stage) {
    return tarantella::collective::alltoall(stage, input, {send_counts, stage.size()}, output,
                                            {receive_counts, stage.size()}, static_cast<DType>(dtype),
                                            text_of(name));
  });
}

tnt_code tnt_barrier(tnt_context* context, const char* name) {
  return collective(context,
                    [&](Stage& stage) { return tarantella::collective::barrier(stage, text_of(name)); });
}

tnt_code tnt_buffer_create(tnt_context* context, size_t bytes, tnt_buffer** buffer) {
  return collective(context, [&](Stage& stage) -> Status {
    auto memory = tarantella::collective::SharedBuffer::create(stage, bytes);
    if (!memory.ok()) return memory.status();
    *buffer = new tnt_buffer{std::move(memory).value(), context};
    return {};
  });
}

void* tnt_buffer_data(tnt_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->memory->own().data();
}

tnt_code tnt_buffer_allreduce(tnt_buffer* buffer, size_t count, tnt_dtype dtype, tnt_reduction reduction,
                              const char* name) {
  if (buffer == nullptr) return report(invalid("the buffer is NULL"));
  return collective(buffer->context, [&](Stage& stage) {
    return buffer->memory->allreduce(stage, count, static_cast<DType>(dtype),
                                     static_cast<Reduction>(reduction), text_of(name));
  });
}

void tnt_buffer_release(tnt_buffer* buffer) { delete buffer; }
tnt_code tnt_post(tnt_context* context, const char* name, uint32_t result) {
  return on_context(context, [&](auto& communicator) {
    return communicator.call([&](auto&) -> Status {
      communicator.group().post(name_of(name), result);
      return {};
    });
  });
}

tnt_code tnt_wait_posted(tnt_context* context, int rank, const char* name, uint32_t* result) {
  return on_context(context, [&](auto& communicator) {
    return communicator.call([&](auto&) -> Status {
      auto& group = communicator.group();
      if (rank < 0 || rank >= group.size() || rank == group.rank()) {
        return invalid(
            tarantella::text("a rank cannot wait for a post of rank ", rank, " of ", group.size()));
      }
      const auto posted = group.await_post(rank, name_of(name));
      if (!posted.ok()) return posted.status();
      *result = posted.value();
      return {};
    });
  });
}

tnt_code tnt_plan_create(tnt_context* context, const char* name, const tnt_tensor* tensors, size_t count,
                         size_t fusion_threshold, tnt_plan* plan) {
  return on_context(context, [&](auto& communicator) -> Status {
    std::vector<tarantella::engine::TensorSpec> specs;
    for (size_t i = 0; i < count; ++i) {
      specs.push_back(spec_of(tensors[i]));
      TNT_RETURN_IF_ERROR(check_spec(specs.back()));
    }
    auto created = communicator.add_plan(name_of(name), specs, fusion_threshold);
    if (!created.ok()) return created.status();
    *plan = tarantella::capi::plans().add(context->communicator, created.value());
    const std::lock_guard lock(context->mutex);
    context->plans.push_back(*plan);
    return {};
  });
}

tnt_code tnt_plan_release(tnt_plan plan) {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_process(tarantella::capi::plans().usable()));
    auto entry = tarantella::capi::plans().take(plan);
    if (entry.plan == nullptr)
      return invalid(tarantella::text("there is no plan ", plan, "; was it released?"));
    entry.communicator->remove_plan(entry.plan);
    return {};
  });
}

tnt_code tnt_plan_submit(tnt_plan plan, size_t index, const void* data, size_t count, tnt_dtype dtype,
                         tnt_done done, void* user) {
  return on_plan(plan, [&](auto& found) {
    const auto call_back = [done, user](const Status& status, const void* result) {
      done(user, static_cast<tnt_code>(status.code()), status.message().c_str(), result);
    };
    return found.submit(index, data, count, static_cast<DType>(dtype), call_back);
  });
}

tnt_code tnt_plan_run(tnt_plan plan, const void* const* inputs, const size_t* bytes, void* const* outputs,
                      size_t tensors) {
  return on_plan(plan, [&](auto& found) -> Status {
    const size_t expected = found.layout().places.size();
    if (tensors == expected) return found.run(inputs, bytes, outputs);
    return invalid(tarantella::text("the plan has ", expected, " tensors, not ", tensors));
  });
}

tnt_code tnt_plan_abort(tnt_plan plan, const char* reason) {
  return on_plan(plan, [&](auto& found) -> Status {
    found.abort(name_of(reason));
    return {};
  });
}

tnt_code tnt_plan_bucket(tnt_plan plan, size_t index, size_t* bucket) {
  return on_plan(plan, [&](auto& found) -> Status {
    const auto& places = found.layout().places;
    if (index >= places.size()) return invalid(tarantella::text("the plan has no tensor ", index));
    *bucket = places[index].first_bucket;
    return {};
  });
}

tnt_code tnt_plan_memory(tnt_plan plan, tnt_memory** memory) {
  return on_plan(plan, [&](auto& found) -> Status {
    *memory = new tnt_memory{found.memory()};
    return {};
  });
}

void tnt_memory_release(tnt_memory* memory) { delete memory; }

tnt_code tnt_plan_trace(tnt_plan plan, tnt_record* records, size_t capacity, size_t* count) {
  return on_plan(plan, [&](auto& found) -> Status {
    const auto events = found.trace().snapshot();
    *count = std::min(capacity, events.size());
    const size_t first = events.size() - *count;
    for (size_t i = 0; i < *count; ++i) {
      const auto& event = events[first + i];
      records[i] = {event.nanoseconds, static_cast<uint32_t>(event.event), event.index};
    }
    return {};
  });
}

}  // extern "C"
