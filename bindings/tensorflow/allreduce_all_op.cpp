// TarantellaAllreduceAll: all gradients of a plan in, their sums over ranks out, in one blocking call. For eager
// execution, where an op a gradient would wait for the others for ever.

#include "c_api.h"
#include "tarantella/tarantella.h"

namespace tarantella::tensorflow {
namespace {

void* create(TF_OpKernelConstruction* construction) {
  TfStatus status(*api());
  int64_t plan = 0;
  api()->TF_OpKernelConstruction_GetAttrInt64(construction, "plan", &plan, status.get());
  if (status.ok()) return new tnt_plan(static_cast<tnt_plan>(plan));
  api()->TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void destroy(void* kernel) { delete static_cast<tnt_plan*>(kernel); }

TF_Tensor* output_like(const TF_Tensor* input, TF_OpKernelContext* context, int index, TfStatus& status) {
  std::vector<int64_t> dims;
  for (int i = 0; i < api()->TF_NumDims(input); ++i) dims.push_back(api()->TF_Dim(input, i));
  return api()->TF_AllocateOutput(context, index, api()->TF_TensorType(input), dims.data(),
                                  static_cast<int>(dims.size()), api()->TF_TensorByteSize(input),
                                  status.get());
}

void compute(void* kernel, TF_OpKernelContext* context) {
  TfStatus status(*api());
  const Inputs inputs(context, status);
  std::vector<const void*> values;
  std::vector<size_t> sizes;
  std::vector<void*> sums;
  for (size_t i = 0; i < inputs.tensors().size() && status.ok(); ++i) {
    TF_Tensor* output = output_like(inputs.tensors()[i], context, static_cast<int>(i), status);
    if (!status.ok()) break;
    values.push_back(api()->TF_TensorData(inputs.tensors()[i]));
    sizes.push_back(api()->TF_TensorByteSize(inputs.tensors()[i]));
    sums.push_back(api()->TF_TensorData(output));
    api()->TF_DeleteTensor(output);  // the context holds it too
  }
  if (status.ok() && tnt_plan_run(*static_cast<tnt_plan*>(kernel), values.data(), sizes.data(), sums.data(),
                                  values.size()) != TNT_OK) {
    status.set(kAborted, tnt_last_error());
  }
  if (!status.ok()) api()->TF_OpKernelContext_Failure(context, status.get());
}

bool register_allreduce_all() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaAllreduceAll");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list({float, double, half, bfloat16, int32, int64})");
  api()->TF_OpDefinitionBuilderAddAttr(op, "plan: int");
  api()->TF_OpDefinitionBuilderAddInput(op, "gradients: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "sums: T");
  return register_op(op, "TarantellaAllreduceAll",
                     api()->TF_NewKernelBuilder("TarantellaAllreduceAll", "CPU", create, compute, destroy));
}

[[maybe_unused]] const bool registered = register_allreduce_all();

}  // namespace
}  // namespace tarantella::tensorflow
