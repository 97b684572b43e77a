// TarantellaAllreduce: one gradient in, its sum over ranks out. The kernel is asynchronous: it hands the gradient to
// the core and returns, so TensorFlow goes on with the backward pass.
//
// The op is not marked stateful: stateful ops would run one after the other, and a bucket of two would wait for ever.

#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "c_api.h"
#include "tarantella/tarantella.h"

namespace tarantella::tensorflow {
namespace {

constexpr int kMaxDimensions = 32;

struct Kernel {
  int64_t plan = 0;
  int64_t index = 0;
};

/// One run of the kernel, from compute() until its done callback has run.
struct Step {
  TF_OpKernelContext* context;
  // TensorFlow passes a pointer to a std::function on its caller's stack: it is moved out before compute() returns
  std::function<void()> done;
  std::array<int64_t, kMaxDimensions> dims;
  int dimensions;
  size_t bytes;

  void finish() {
    api()->TF_RunAsyncOpKernelDoneCallback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&done));
  }
  void fail(int code, const char* message) {
    TfStatus status(*api());
    status.set(code, message);
    api()->TF_OpKernelContext_Failure(context, status.get());
    finish();
  }
};

/// The dtype's number and size in bytes, by TF_DataType; {0, 0} if the core has no such type.
struct Type {
  tnt_dtype dtype;
  size_t size;
};
Type type_of(int tf_type) {
  switch (tf_type) {
    case 1:
      return {TNT_FLOAT32, 4};
    case 2:
      return {TNT_FLOAT64, 8};
    case 3:
      return {TNT_INT32, 4};
    case 9:
      return {TNT_INT64, 8};
    default:
      return {static_cast<tnt_dtype>(0), 0};
  }
}

void write_output(Step& step, const void* result) {
  TfStatus status(*api());
  const int candidate = 0;
  int forwarded = -1;
  TF_Tensor* output = api()->TF_ForwardInputOrAllocateOutput(step.context, &candidate, 1, 0, step.dims.data(),
                                                             step.dimensions, &forwarded, status.get());
  if (!status.ok()) {
    api()->TF_OpKernelContext_Failure(step.context, status.get());
  } else {
    if (step.bytes != 0) std::memcpy(api()->TF_TensorData(output), result, step.bytes);
    api()->TF_DeleteTensor(output);
  }
  step.finish();
}

void on_done(void* user, tnt_code code, const char* message, const void* result) {
  const std::unique_ptr<Step> step(static_cast<Step*>(user));
  if (code == TNT_OK) {
    write_output(*step, result);
  } else {
    step->fail(kAborted, message);
  }
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  auto step = std::make_unique<Step>();
  step->context = context;
  step->done = std::move(*reinterpret_cast<std::function<void()>*>(done));
  TfStatus status(*api());
  TF_Tensor* input = nullptr;
  api()->TF_GetInput(context, 0, &input, status.get());
  if (!status.ok()) return step->fail(api()->TF_GetCode(status.get()), api()->TF_Message(status.get()));
  step->dimensions = api()->TF_NumDims(input);
  const Type type = type_of(api()->TF_TensorType(input));
  size_t count = 1;
  for (int i = 0; i < step->dimensions && i < kMaxDimensions; ++i) {
    step->dims[static_cast<size_t>(i)] = api()->TF_Dim(input, i);
    count *= static_cast<size_t>(api()->TF_Dim(input, i));
  }
  step->bytes = count * type.size;
  const auto* attributes = static_cast<Kernel*>(kernel);
  Step* handed_over = step.release();
  const tnt_code code =
      tnt_plan_submit(static_cast<tnt_plan>(attributes->plan), static_cast<size_t>(attributes->index),
                      api()->TF_TensorData(input), count, type.dtype, on_done, handed_over);
  api()->TF_DeleteTensor(input);
  if (code != TNT_OK) {
    step.reset(handed_over);
    step->fail(code == TNT_INVALID_ARGUMENT ? kInvalidArgument : kAborted, tnt_last_error());
  }
}

void* create(TF_OpKernelConstruction* construction) {
  auto kernel = std::make_unique<Kernel>();
  TfStatus status(*api());
  api()->TF_OpKernelConstruction_GetAttrInt64(construction, "plan", &kernel->plan, status.get());
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrInt64(construction, "index", &kernel->index, status.get());
  if (!status.ok()) {
    api()->TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return kernel.release();
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

void same_shape(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = api()->TF_NewShapeHandle();
  api()->TF_ShapeInferenceContextGetInput(context, 0, shape, status);
  if (api()->TF_GetCode(status) == kOk) api()->TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
  api()->TF_DeleteShapeHandle(shape);
}

/// Runs when TensorFlow loads this library: it takes over what was registered meanwhile.
bool register_op() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaAllreduce");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: {float, double, int32, int64}");
  api()->TF_OpDefinitionBuilderAddAttr(op, "plan: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "index: int");
  api()->TF_OpDefinitionBuilderAddInput(op, "gradient: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "sum: T");
  api()->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, same_shape);
  TfStatus status(*api());
  api()->TF_RegisterOpDefinition(op, status.get());
  if (status.ok()) {
    TF_KernelBuilder* kernel =
        api()->TF_NewAsyncKernelBuilder("TarantellaAllreduce", "CPU", create, compute, destroy);
    api()->TF_RegisterKernelBuilder("TarantellaAllreduce", kernel, status.get());
  }
  if (!status.ok())
    std::fprintf(stderr, "tarantella: ERROR: the TensorFlow op: %s\n", api()->TF_Message(status.get()));
  return status.ok();
}

[[maybe_unused]] const bool registered = register_op();

}  // namespace
}  // namespace tarantella::tensorflow
