#include "capi/plans.h"

#include <algorithm>
#include <string>
#include <vector>

#include "capi/context.h"
#include "engine/zero_steps.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;

/// Keeps a plan's memory mapped.
struct tnt_memory {
  std::shared_ptr<void> owner;
};

struct tnt_zeros {
  engine::ZeroSteps steps;
  size_t tensors;
  int forks;
};

namespace {

Result<std::shared_ptr<engine::Plan>> find_plan(tnt_plan number) {
  TNT_RETURN_IF_ERROR(check_process(plans().usable()));
  auto plan = plans().find(number);
  if (plan == nullptr) return invalid(text("there is no plan ", number, "; was its context closed?"));
  return plan;
}

/// As guarded(), for a call on a plan. kInvalidArgument for an unknown number and in a forked child.
template <typename Body>
tnt_code on_plan(tnt_plan number, Body body) noexcept {
  return guarded([&]() -> Status {
    const auto plan = find_plan(number);
    if (!plan.ok()) return plan.status();
    return body(*plan.value());
  });
}

/// As guarded(), for a call on zeros. kInvalidArgument for NULL and in a forked child.
template <typename Body>
tnt_code on_zeros(tnt_zeros* zeros, Body body) noexcept {
  return guarded([&]() -> Status {
    if (zeros == nullptr) return invalid("the zeros are NULL");
    TNT_RETURN_IF_ERROR(check_process(zeros->forks == forks()));
    return body(zeros->steps);
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

Status check_stream(const void* stream) {
  if (stream == nullptr) return {};
  return invalid("a plan of tensors in host memory takes no stream; pass NULL");
}

}  // namespace

extern "C" {

tnt_code tnt_plan_create(tnt_context* context, const char* name, const tnt_tensor* tensors, size_t count,
                         size_t fusion_threshold, tnt_device device, tnt_numbers numbers, tnt_plan* plan) {
  return on_context(context, [&](auto&) -> Status {
    if (device != TNT_HOST)
      return invalid(text("this version sums tensors in host memory only, not on device ",
                          static_cast<int>(device), "; copy them to the host"));
    std::vector<engine::TensorSpec> specs;
    for (size_t i = 0; i < count; ++i) {
      specs.push_back(spec_of(tensors[i]));
      TNT_RETURN_IF_ERROR(check_spec(specs.back()));
    }
    const timeline::Span span(timeline::Kind::kExchange, "plan");
    auto created = context->on_all_ranks([&](auto& ranks) {
      return ranks.add_plan(name_of(name), specs, fusion_threshold, static_cast<engine::Numbers>(numbers));
    });
    if (!created.ok()) return created.status();
    *plan = plans().add(context->communicator, created.value());
    return {};
  });
}

tnt_code tnt_plan_release(tnt_plan plan) {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_process(plans().usable()));
    auto entry = plans().take(plan);
    if (entry.plan == nullptr) return invalid(text("there is no plan ", plan, "; was it released?"));
    entry.communicator->remove_plan(entry.plan);
    return {};
  });
}

tnt_code tnt_plan_submit(tnt_plan plan, size_t index, const void* data, size_t count, tnt_dtype dtype,
                         uint32_t number, void* stream, tnt_done done, void* user) {
  return on_plan(plan, [&](auto& found) -> Status {
    TNT_RETURN_IF_ERROR(check_stream(stream));
    const auto call_back = [done, user](const Status& status, const void* result) {
      done(user, static_cast<tnt_code>(status.code()), status.message().c_str(), result);
    };
    return found.submit(index, data, count, static_cast<DType>(dtype), call_back, collective::Kept::kForGood,
                        number);
  });
}

tnt_code tnt_plan_run(tnt_plan plan, const void* const* inputs, const size_t* bytes, void* const* outputs,
                      size_t tensors, uint32_t number, void* stream) {
  return on_plan(plan, [&](auto& found) -> Status {
    TNT_RETURN_IF_ERROR(check_stream(stream));
    const size_t expected = found.layout().places.size();
    if (tensors == expected) return found.run(inputs, bytes, outputs, number);
    return invalid(text("the plan has ", expected, " tensors, not ", tensors));
  });
}

tnt_code tnt_plan_abort(tnt_plan plan, const char* reason) {
  return on_plan(plan, [&](auto& found) -> Status {
    found.abort(name_of(reason));
    return {};
  });
}

tnt_code tnt_plan_check_finite(tnt_plan plan) {
  return on_plan(plan, [&](auto& found) -> Status {
    found.check_finite();
    return {};
  });
}

tnt_code tnt_plan_bucket(tnt_plan plan, size_t index, size_t* bucket) {
  return on_plan(plan, [&](auto& found) -> Status {
    const auto& places = found.layout().places;
    if (index >= places.size()) return invalid(text("the plan has no tensor ", index));
    *bucket = places[index].first_bucket;
    return {};
  });
}

tnt_code tnt_zeros_begin(tnt_plan number, size_t tensors, uint64_t* steps, tnt_zeros** zeros) {
  return guarded([&]() -> Status {
    auto plan = find_plan(number);
    if (!plan.ok()) return plan.status();
    const size_t expected = plan.value()->tensors().size();
    if (tensors != expected) return invalid(text("the plan has ", expected, " tensors, not ", tensors));
    *zeros = new tnt_zeros{engine::ZeroSteps(plan.value()), tensors, forks()};
    std::ranges::copy((*zeros)->steps.before(), steps);
    return {};
  });
}

tnt_code tnt_zeros_stop(tnt_zeros* zeros, uint64_t* steps) {
  return on_zeros(zeros, [&](auto& found) -> Status {
    std::ranges::copy(found.stop(), steps);
    return {};
  });
}

tnt_code tnt_zeros_finish(tnt_zeros* zeros, const uint64_t* steps) {
  return on_zeros(zeros, [&](auto& found) { return found.finish({steps, steps + zeros->tensors}); });
}

void tnt_zeros_release(tnt_zeros* zeros) {
  if (zeros != nullptr && zeros->forks == forks()) delete zeros;
}

tnt_code tnt_plan_memory(tnt_plan plan, tnt_memory** memory) {
  return on_plan(plan, [&](auto& found) -> Status {
    *memory = new tnt_memory{found.memory()};
    return {};
  });
}

void tnt_memory_release(tnt_memory* memory) { delete memory; }

}  // extern "C"
