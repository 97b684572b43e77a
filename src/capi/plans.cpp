#include "capi/plans.h"

#include <algorithm>
#include <string>
#include <vector>

#include "capi/context.h"
#include "capi/owner.h"
#include "capi/stream.h"
#include "engine/zero_contributions.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;

/// Keeps a plan's memory mapped.
struct tnt_memory {
  std::shared_ptr<void> owner;
};

struct tnt_zero_contributions {
  engine::ZeroContributions contributions;
  size_t tensors;
  int fork_count;
};

namespace {

Result<std::shared_ptr<engine::Plan>> find_plan(tnt_plan id) {
  TNT_RETURN_IF_ERROR(check_process(plans().usable()));
  auto plan = plans().find(id);
  if (plan == nullptr) return invalid(text("there is no plan ", id, "; was its context closed?"));
  return plan;
}

/// As guarded(), for a call on a plan. kInvalidArgument for an unknown id and in a forked child.
template <typename Body>
tnt_code on_plan(tnt_plan id, Body body) noexcept {
  return guarded([&]() -> Status {
    const auto plan = find_plan(id);
    if (!plan.ok()) return plan.status();
    return body(*plan.value());
  });
}

/// As guarded(), for a call on zero contributions. kInvalidArgument for NULL and in a forked child.
template <typename Body>
tnt_code on_zeros(tnt_zero_contributions* zeros, Body body) noexcept {
  return guarded([&]() -> Status {
    if (zeros == nullptr) return invalid("the zero contributions are NULL");
    TNT_RETURN_IF_ERROR(check_process(zeros->fork_count == fork_count()));
    return body(zeros->contributions);
  });
}

engine::TensorSpec spec_of(const tnt_tensor& tensor) {
  return {name_of(tensor.name),
          static_cast<DType>(tensor.dtype),
          {tensor.shape, tensor.shape + tensor.dimensions}};
}

Status check_spec(const engine::TensorSpec& spec) {
  if (!is_valid(spec.dtype)) return invalid(text("tensor ", spec.name, " has an unknown dtype"));
  constexpr uint64_t kMost = 1'000'000'000'000'000;  // bytes; far above any machine, far below an overflow
  uint64_t bytes = size_of(spec.dtype);
  for (const int64_t extent : spec.shape) {
    const auto count = static_cast<uint64_t>(extent);
    if (extent < 0 || (count != 0 && bytes > kMost / count)) {
      return invalid(text("tensor ", spec.name, " has an impossible shape"));
    }
    bytes *= count;
  }
  return {};
}

}  // namespace

extern "C" {

tnt_code tnt_plan_create(tnt_context* context, const char* name, const tnt_tensor* tensors, size_t count,
                         size_t fusion_threshold, tnt_device device, int ordinal, tnt_step_check step_check,
                         tnt_plan* plan) {
  return on_context(context, [&](engine::Context& engine_context) -> Status {
    if (device != TNT_HOST)
      return Status(Code::kUnsupported, text("this version sums tensors in host memory only, not on device ",
                                             ordinal, "; copy them to the host"));
    std::vector<engine::TensorSpec> specs;
    for (size_t i = 0; i < count; ++i) {
      specs.push_back(spec_of(tensors[i]));
      TNT_RETURN_IF_ERROR(check_spec(specs.back()));
    }
    const timeline::Span span(timeline::Kind::kExchange, "plan");
    auto created = engine_context.add_plan(name_of(name), specs, fusion_threshold,
                                           static_cast<engine::StepCheck>(step_check));
    if (!created.ok()) return created.status();
    *plan = plans().add(context->context, created.value());
    return {};
  });
}

tnt_code tnt_plan_release(tnt_plan plan) {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_process(plans().usable()));
    auto entry = plans().take(plan);
    if (entry.plan == nullptr) return invalid(text("there is no plan ", plan, "; was it released?"));
    entry.context->remove_plan(entry.plan);
    return {};
  });
}

tnt_code tnt_plan_submit(tnt_plan id, size_t index, const void* data, size_t count, tnt_dtype dtype,
                         uint32_t training_step, void* stream, tnt_done done, tnt_released released,
                         void* user) {
  std::shared_ptr<const void> owner;
  if (const tnt_code code = make_owner(released, user, owner); code != TNT_OK) return code;
  return on_plan(id, [&](engine::Plan& plan) -> Status {
    TNT_RETURN_IF_ERROR(check_stream(stream));
    const auto call_back = [done, user](const Status& status, const void* result) {
      done(user, static_cast<tnt_code>(status.code()), status.message().c_str(), result);
    };
    return plan.submit(index, data, count, static_cast<DType>(dtype), call_back, std::move(owner),
                       training_step);
  });
}

tnt_code tnt_plan_run(tnt_plan id, const void* const* inputs, const size_t* bytes, void* const* outputs,
                      size_t tensors, uint32_t training_step, void* stream) {
  return on_plan(id, [&](engine::Plan& plan) -> Status {
    TNT_RETURN_IF_ERROR(check_stream(stream));
    const size_t expected = plan.layout().slots.size();
    if (tensors == expected) return plan.run(inputs, bytes, outputs, training_step);
    return invalid(text("the plan has ", expected, " tensors, not ", tensors));
  });
}

tnt_code tnt_plan_abort(tnt_plan id, const char* reason) {
  return on_plan(id, [&](engine::Plan& plan) -> Status {
    plan.abort(name_of(reason));
    return {};
  });
}

tnt_code tnt_plan_check_finite(tnt_plan id) {
  return on_plan(id, [&](engine::Plan& plan) -> Status {
    plan.check_finite();
    return {};
  });
}

tnt_code tnt_plan_bucket(tnt_plan id, size_t index, size_t* bucket) {
  return on_plan(id, [&](engine::Plan& plan) -> Status {
    const auto& slots = plan.layout().slots;
    if (index >= slots.size()) return invalid(text("the plan has no tensor ", index));
    *bucket = slots[index].first_bucket;
    return {};
  });
}

tnt_code tnt_zero_contributions_begin(tnt_plan id, size_t tensors, uint64_t* steps,
                                      tnt_zero_contributions** zeros) {
  return guarded([&]() -> Status {
    auto plan = find_plan(id);
    if (!plan.ok()) return plan.status();
    const size_t expected = plan.value()->tensors().size();
    if (tensors != expected) return invalid(text("the plan has ", expected, " tensors, not ", tensors));
    *zeros = new tnt_zero_contributions{engine::ZeroContributions(plan.value()), tensors, fork_count()};
    std::ranges::copy((*zeros)->contributions.before(), steps);
    return {};
  });
}

tnt_code tnt_zero_contributions_stop(tnt_zero_contributions* zeros, uint64_t* steps) {
  return on_zeros(zeros, [&](engine::ZeroContributions& contributions) -> Status {
    std::ranges::copy(contributions.stop(), steps);
    return {};
  });
}

tnt_code tnt_zero_contributions_finish(tnt_zero_contributions* zeros, const uint64_t* steps) {
  return on_zeros(zeros, [&](engine::ZeroContributions& contributions) {
    return contributions.finish({steps, steps + zeros->tensors});
  });
}

void tnt_zero_contributions_release(tnt_zero_contributions* zeros) {
  if (zeros != nullptr && zeros->fork_count == fork_count()) delete zeros;
}

tnt_code tnt_plan_memory(tnt_plan id, tnt_memory** memory) {
  return on_plan(id, [&](engine::Plan& plan) -> Status {
    *memory = new tnt_memory{plan.memory()};
    return {};
  });
}

void tnt_memory_release(tnt_memory* memory) { delete memory; }

}  // extern "C"
