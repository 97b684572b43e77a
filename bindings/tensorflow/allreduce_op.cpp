// TarantellaAllreduce: one gradient in, its sum over ranks out. The kernel is asynchronous: it hands the gradient to
// the core and returns, so TensorFlow goes on with the backward pass.
//
// The op is not marked stateful: stateful ops would run one after the other, and a bucket of two would wait for ever.
//
// `anchor` is read by nobody: it comes from a variable, so that TensorFlow's constant folding never runs the op while
// it optimises a graph whose gradient happens to be constant. There it would wait for gradients that come later.
//
// With `borrow` the output is the ranks' shared result area itself. It is overwritten in the next step, so only
// consumers that keep nothing of it (an optimizer's update, but not variable.assign) may ask for that.

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "c_api.h"
#include "tarantella/tarantella.h"

namespace tarantella::tensorflow {
namespace {

constexpr int kMaxDimensions = 32;

class Kernel {
 public:
  tnt_plan plan = 0;
  size_t index = 0;
  bool borrow = false;

  /// Keeps the lent output until the next one: at a reference count of one, TensorFlow's next op would write its own
  /// result into it.
  void lend(TF_Tensor* output) {
    TF_Tensor* const last = lent_.exchange(output);
    if (last != nullptr) api()->TF_DeleteTensor(last);
  }
  Kernel() = default;
  ~Kernel() { lend(nullptr); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 private:
  std::atomic<TF_Tensor*> lent_{nullptr};
};

/// One run of the kernel, from compute() until its done callback has run.
struct Step {
  Kernel* kernel;
  TF_OpKernelContext* context;
  // TensorFlow passes a pointer to a std::function on its caller's stack: it is moved out before compute() returns
  std::function<void()> done;
  std::array<int64_t, kMaxDimensions> dims;
  int dimensions;
  int type;
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
    case 14:
      return {TNT_BFLOAT16, 2};
    case 19:
      return {TNT_FLOAT16, 2};
    default:
      return {static_cast<tnt_dtype>(0), 0};
  }
}

TF_Tensor* copied_output(Step& step, const void* result, TfStatus& status) {
  const int candidate = 0;
  int forwarded = -1;
  TF_Tensor* output = api()->TF_ForwardInputOrAllocateOutput(step.context, &candidate, 1, 0, step.dims.data(),
                                                             step.dimensions, &forwarded, status.get());
  if (status.ok() && step.bytes != 0) std::memcpy(api()->TF_TensorData(output), result, step.bytes);
  return output;
}

TF_Tensor* lent_output(Step& step, const void* result, TfStatus& status) {
  tnt_memory* memory = nullptr;
  if (tnt_plan_memory(step.kernel->plan, &memory) != TNT_OK) {
    status.set(kAborted, tnt_last_error());
    return nullptr;
  }
  const auto release = [](void*, size_t, void* held) { tnt_memory_release(static_cast<tnt_memory*>(held)); };
  TF_Tensor* output = api()->TF_NewTensor(step.type, step.dims.data(), step.dimensions,
                                          const_cast<void*>(result), step.bytes, release, memory);
  api()->TF_SetOutput(step.context, 0, output, status.get());
  return output;
}

void write_output(Step& step, const void* result) {
  TfStatus status(*api());
  const bool lend = step.kernel->borrow && step.bytes != 0;
  TF_Tensor* output = lend ? lent_output(step, result, status) : copied_output(step, result, status);
  if (!status.ok()) api()->TF_OpKernelContext_Failure(step.context, status.get());
  if (lend && output != nullptr) {
    step.kernel->lend(output);
  } else if (output != nullptr) {
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
  step->kernel = static_cast<Kernel*>(kernel);
  step->context = context;
  step->done = std::move(*reinterpret_cast<std::function<void()>*>(done));
  TfStatus status(*api());
  TF_Tensor* input = nullptr;
  api()->TF_GetInput(context, 0, &input, status.get());
  if (!status.ok()) return step->fail(api()->TF_GetCode(status.get()), api()->TF_Message(status.get()));
  step->dimensions = api()->TF_NumDims(input);
  step->type = api()->TF_TensorType(input);
  const Type type = type_of(step->type);
  if (step->dimensions > kMaxDimensions) {
    api()->TF_DeleteTensor(input);
    return step->fail(kInvalidArgument, "a gradient has more than 32 dimensions");
  }
  size_t count = 1;
  for (int i = 0; i < step->dimensions; ++i) {
    step->dims[static_cast<size_t>(i)] = api()->TF_Dim(input, i);
    count *= static_cast<size_t>(api()->TF_Dim(input, i));
  }
  step->bytes = count * type.size;
  const Kernel* attributes = step->kernel;
  Step* handed_over = step.release();
  const tnt_code code = tnt_plan_submit(attributes->plan, attributes->index, api()->TF_TensorData(input),
                                        count, type.dtype, on_done, handed_over);
  api()->TF_DeleteTensor(input);
  if (code != TNT_OK) {
    step.reset(handed_over);
    const std::string reason = tnt_last_error();
    (void)tnt_plan_abort(attributes->plan, reason.c_str());  // the bucket's other tensors would wait for ever
    step->fail(code == TNT_INVALID_ARGUMENT ? kInvalidArgument : kAborted, reason.c_str());
  }
}

void* create(TF_OpKernelConstruction* construction) {
  auto kernel = std::make_unique<Kernel>();
  TfStatus status(*api());
  int64_t plan = 0;
  int64_t index = 0;
  unsigned char borrow = 0;
  api()->TF_OpKernelConstruction_GetAttrInt64(construction, "plan", &plan, status.get());
  if (status.ok()) api()->TF_OpKernelConstruction_GetAttrInt64(construction, "index", &index, status.get());
  if (status.ok()) api()->TF_OpKernelConstruction_GetAttrBool(construction, "borrow", &borrow, status.get());
  if (!status.ok()) {
    api()->TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  kernel->plan = static_cast<tnt_plan>(plan);
  kernel->index = static_cast<size_t>(index);
  kernel->borrow = borrow != 0;
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
bool register_allreduce() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaAllreduce");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: {float, double, half, bfloat16, int32, int64}");
  api()->TF_OpDefinitionBuilderAddAttr(op, "plan: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "index: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "borrow: bool = false");
  api()->TF_OpDefinitionBuilderAddInput(op, "gradient: T");
  api()->TF_OpDefinitionBuilderAddInput(op, "anchor: int64");
  api()->TF_OpDefinitionBuilderAddOutput(op, "sum: T");
  api()->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, same_shape);
  return register_op(op, "TarantellaAllreduce",
                     api()->TF_NewAsyncKernelBuilder("TarantellaAllreduce", "CPU", create, compute, destroy));
}

[[maybe_unused]] const bool registered = register_allreduce();

}  // namespace
}  // namespace tarantella::tensorflow
