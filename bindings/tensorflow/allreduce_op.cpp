// TarantellaAllreduce: gradients of a plan in, their sums over ranks out. The kernel is asynchronous: it hands the
// gradients to the core and returns, so TensorFlow continues with the backward pass.
//
// One op takes all gradients of a bucket. With one op per gradient, one could fail after others were submitted, and the
// step could neither end nor report it. One op also has the least overhead in TensorFlow.
//
// The op is not marked stateful: stateful ops would run one after the other, and buckets would not overlap.
//
// `step` is the number of the training step, which the core compares; 0 is not compared. It comes from a variable, so
// that TensorFlow's constant folding never runs the op while it optimises a graph with constant gradients. The op would
// wait there for ranks that have not reached the step.
//
// If `empty` is true, this rank has no rows, and zeros replace its gradients. As an input it costs nothing; a
// conditional for each gradient took 1 % of a step of a small network.
//
// With `alias_outputs` the outputs alias the shared result memory. It is overwritten in the next step, so only
// consumers that do not keep it (an optimizer's update, but not variable.assign) may request it.

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c_api.h"
#include "tarantella/tarantella.h"

namespace tarantella::tensorflow {
namespace {

struct Attributes {
  tnt_plan plan = 0;
  std::vector<int64_t> tensors;  ///< numbers in the plan
  bool alias_outputs = false;
};

class Kernel {
 public:
  explicit Kernel(Attributes op_attributes)
      : attributes(std::move(op_attributes)), aliased_(attributes.tensors.size()) {}
  ~Kernel() {
    for (size_t i = 0; i < aliased_.size(); ++i) keep_alias(i, nullptr);
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const Attributes attributes;

  /// Keeps an aliased output until the next one: at a reference count of one, TensorFlow's next op would reuse it for
  /// its own result.
  void keep_alias(size_t i, TF_Tensor* output) {
    TF_Tensor* const last = aliased_[i].exchange(output);
    if (last != nullptr) api()->TF_DeleteTensor(last);
  }

 private:
  std::vector<std::atomic<TF_Tensor*>> aliased_;
};

/// One run of the kernel, from compute() until TensorFlow's done callback has run and the core has released the
/// gradients.
class Invocation {
 public:
  Invocation(Kernel& kernel, TF_OpKernelContext* context, Done done)
      : kernel_(kernel),
        attributes_(kernel.attributes),
        context_(context),
        done_(std::move(done)),
        parts_(attributes_.tensors.size()) {}

  /// Submits the gradients, which TensorFlow keeps until done, and after an error this. It deletes itself when it
  /// has ended, which may be before this returns.
  void start();

 private:
  struct Part {
    Invocation* invocation;
    std::vector<int64_t> dims;
    int type;
    size_t bytes;
    const void* result;
  };

  static void on_done(void* part, tnt_code code, const char* message, const void* result);
  static void on_released(void* part) { static_cast<Part*>(part)->invocation->let_go(1); }
  bool submit(size_t i, TF_Tensor* gradient, uint32_t training_step, bool empty);
  void fail(int code, const std::string& message);
  /// Ends the run of the kernel if `parts` were the last.
  void count_down(size_t parts);
  /// Deletes the invocation if `parts` were the last that used it.
  void let_go(size_t parts) {
    if (users_.fetch_sub(parts, std::memory_order_acq_rel) == parts) delete this;
  }
  TF_Tensor* copied_output(size_t i, TfStatus& status);
  TF_Tensor* aliased_output(size_t i, TfStatus& status);

  Kernel& kernel_;
  const Attributes& attributes_;
  TF_OpKernelContext* const context_;
  Done done_;
  std::vector<Part> parts_;
  std::atomic<size_t> pending_{parts_.size() + 1};  // one for start()
  std::atomic<size_t> users_{parts_.size() + 1};    // parts that are not released, and the run of the kernel
  std::unique_ptr<const Inputs> kept_;              // the gradients, after an error
  std::mutex mutex_;
  int code_ = kOk;       // guarded by mutex_
  std::string message_;  // guarded by mutex_
};

void Invocation::start() {
  const size_t count = parts_.size();
  size_t tried = 0, submitted = 0;
  {
    TfStatus status(*api());
    const Inputs inputs(context_, status);  // the gradients, `step`, `empty`
    if (status.ok()) {
      const auto training_step = *static_cast<const int64_t*>(api()->TF_TensorData(inputs.tensors()[count]));
      const bool empty = *static_cast<const bool*>(api()->TF_TensorData(inputs.tensors()[count + 1]));
      const auto next = [&] {
        return count - 1 - submitted;
      };  // in the order of the buckets, and of the backward pass
      while (tried < count && tried == submitted) {
        ++tried;
        if (submit(next(), inputs.tensors()[next()], static_cast<uint32_t>(training_step), empty))
          ++submitted;
      }
    } else {
      fail(api()->TF_GetCode(status.get()), api()->TF_Message(status.get()));
    }
  }
  if (submitted < count) {  // the other ranks would wait forever
    std::unique_lock lock(mutex_);
    const std::string reason = message_;
    lock.unlock();
    (void)tnt_plan_abort(attributes_.plan, reason.c_str());
  }
  if (tried < count) let_go(count - tried);
  count_down(count - submitted + 1);
}

bool Invocation::submit(size_t i, TF_Tensor* gradient, uint32_t training_step, bool empty) {
  Part& part = parts_[i];
  part = {this, {}, api()->TF_TensorType(gradient), api()->TF_TensorByteSize(gradient), nullptr};
  size_t elements = 1;
  for (int d = 0; d < api()->TF_NumDims(gradient); ++d) {
    part.dims.push_back(api()->TF_Dim(gradient, d));
    elements *= static_cast<size_t>(part.dims.back());
  }
  const tnt_code code =
      tnt_plan_submit(attributes_.plan, static_cast<size_t>(attributes_.tensors[i]),
                      empty ? nullptr : api()->TF_TensorData(gradient), elements, dtype_of(part.type),
                      training_step, nullptr, &Invocation::on_done, &Invocation::on_released, &part);
  if (code != TNT_OK) fail(code == TNT_INVALID_ARGUMENT ? kInvalidArgument : kAborted, tnt_last_error());
  return code == TNT_OK;
}

void Invocation::on_done(void* user, tnt_code code, const char* message, const void* result) {
  Part& part = *static_cast<Part*>(user);
  part.result = result;
  if (code != TNT_OK) part.invocation->fail(kAborted, message);
  part.invocation->count_down(1);
}

void Invocation::fail(int code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (code_ != kOk) return;
  code_ = code;
  message_ = message;
}

void Invocation::count_down(size_t parts) {
  if (pending_.fetch_sub(parts, std::memory_order_acq_rel) != parts) return;
  TfStatus status(*api());
  if (code_ != kOk) {
    kept_ = std::make_unique<const Inputs>(context_, status);
    status.set(code_, message_.c_str());
  }
  for (size_t i = 0; i < parts_.size() && status.ok(); ++i) {
    const bool aliases = attributes_.alias_outputs && parts_[i].bytes != 0;
    TF_Tensor* output = aliases ? aliased_output(i, status) : copied_output(i, status);
    if (aliases && output != nullptr) {
      kernel_.keep_alias(i, output);
    } else if (output != nullptr) {
      api()->TF_DeleteTensor(output);
    }
  }
  if (!status.ok()) api()->TF_OpKernelContext_Failure(context_, status.get());
  call(done_);
  let_go(1);
}

TF_Tensor* Invocation::copied_output(size_t i, TfStatus& status) {
  const Part& part = parts_[i];
  const int candidate = static_cast<int>(i);
  int forwarded = -1;
  TF_Tensor* output =
      api()->TF_ForwardInputOrAllocateOutput(context_, &candidate, 1, candidate, part.dims.data(),
                                             static_cast<int>(part.dims.size()), &forwarded, status.get());
  if (status.ok() && part.bytes != 0) std::memcpy(api()->TF_TensorData(output), part.result, part.bytes);
  return output;
}

TF_Tensor* Invocation::aliased_output(size_t i, TfStatus& status) {
  const Part& part = parts_[i];
  tnt_memory* memory = nullptr;
  if (tnt_plan_memory(attributes_.plan, &memory) != TNT_OK) {
    status.set(kAborted, tnt_last_error());
    return nullptr;
  }
  const auto release = [](void*, size_t, void* held) { tnt_memory_release(static_cast<tnt_memory*>(held)); };
  TF_Tensor* output = api()->TF_NewTensor(part.type, part.dims.data(), static_cast<int>(part.dims.size()),
                                          const_cast<void*>(part.result), part.bytes, release, memory);
  api()->TF_SetOutput(context_, static_cast<int>(i), output, status.get());
  return output;
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  (new Invocation(*static_cast<Kernel*>(kernel), context, moved_out(done)))->start();
}

void* create(TF_OpKernelConstruction* construction) {
  TfStatus status(*api());
  Attributes attributes;
  int64_t plan = 0;
  int32_t count = 0;
  int32_t gradients = 0;
  int32_t bytes = 0;
  unsigned char alias_outputs = 0;
  api()->TF_OpKernelConstruction_GetAttrInt64(construction, "plan", &plan, status.get());
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrBool(construction, "alias_outputs", &alias_outputs, status.get());
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrSize(construction, "tensors", &count, &bytes, status.get());
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrSize(construction, "T", &gradients, &bytes, status.get());
  if (status.ok() && count != gradients)
    status.set(kInvalidArgument, "TarantellaAllreduce needs one number in `tensors` for each gradient");
  attributes.tensors.resize(static_cast<size_t>(count));
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrInt64List(construction, "tensors", attributes.tensors.data(), count,
                                                    status.get());
  attributes.plan = static_cast<tnt_plan>(plan);
  attributes.alias_outputs = alias_outputs != 0;
  if (status.ok()) return new Kernel(std::move(attributes));
  api()->TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  pass_shapes(context, 0, api()->TF_ShapeInferenceContextNumInputs(context) - 2, status);  // the gradients
}

/// Runs when TensorFlow loads this library: it takes over what was registered meanwhile.
bool register_allreduce() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaAllreduce");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list({float, double, half, bfloat16, int32, int64})");
  api()->TF_OpDefinitionBuilderAddAttr(op, "plan: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "tensors: list(int)");
  api()->TF_OpDefinitionBuilderAddAttr(op, "alias_outputs: bool = false");
  api()->TF_OpDefinitionBuilderAddInput(op, "gradients: T");
  api()->TF_OpDefinitionBuilderAddInput(op, "step: int64");
  api()->TF_OpDefinitionBuilderAddInput(op, "empty: bool");
  api()->TF_OpDefinitionBuilderAddOutput(op, "sums: T");
  api()->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, same_shapes);
  return register_op(op, "TarantellaAllreduce",
                     api()->TF_NewAsyncKernelBuilder("TarantellaAllreduce", "CPU", create, compute, destroy));
}

[[maybe_unused]] const bool registered = register_allreduce();

}  // namespace
}  // namespace tarantella::tensorflow
