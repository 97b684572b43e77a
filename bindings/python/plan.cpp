#include "context.h"

namespace nb = nanobind;

namespace tarantella::python {

tnt_plan Context::plan(const std::string& name, const std::vector<TensorSpec>& specs, size_t threshold,
                       int step_check) {
  std::vector<tnt_tensor> tensors;
  for (const auto& [tensor_name, dtype, shape] : specs) {
    tensors.push_back({tensor_name.c_str(), dtype_named(dtype), shape.data(), shape.size()});
  }
  tnt_plan plan = 0;
  call(tnt_plan_create, name.c_str(), tensors.data(), tensors.size(), threshold, TNT_HOST, 0,
       static_cast<tnt_step_check>(step_check), &plan);
  return plan;
}

std::vector<size_t> Context::buckets(tnt_plan plan, size_t tensors) {
  std::vector<size_t> found(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    inside([&] { return tnt_plan_bucket(plan, i, &found[i]); });
  }
  return found;
}

void Context::finish_zero_contributions(const ZeroContributions& zeros, const std::vector<uint64_t>& steps) {
  if (steps.size() != zeros.tensors())
    throw nb::value_error("zero contributions need a number for each tensor");
  inside([&] { return zeros.finish(steps); });
}

}  // namespace tarantella::python
