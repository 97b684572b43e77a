#pragma once
// The part of TensorFlow's C API that the op needs, as pointers looked up by name in the TensorFlow of this process.
// The functions are in different libraries in different versions of TensorFlow. With the lookup, one binary works with
// all versions, and the build needs no TensorFlow. Declared after tensorflow/c/{ops,kernels,tf_tensor,tf_status}.h.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tarantella/tarantella.h"

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
}

namespace tarantella::tensorflow {

constexpr int kOk = 0;               // TF_Code
constexpr int kInvalidArgument = 3;  // TF_Code
constexpr int kAborted = 10;         // TF_Code
constexpr int kInt64 = 9;            // TF_DataType

using TF_ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);
using TF_CreateKernel = void* (*)(TF_OpKernelConstruction*);
using TF_Compute = void (*)(void*, TF_OpKernelContext*);
using TF_ComputeAsync = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using TF_DeleteKernel = void (*)(void*);
using TF_Deallocator = void (*)(void* data, size_t bytes, void* argument);

// TARANTELLA_TF(result, name, arguments)
#define TARANTELLA_TF_FUNCTIONS                                                                          \
  TARANTELLA_TF(TF_Status*, TF_NewStatus, ())                                                            \
  TARANTELLA_TF(void, TF_DeleteStatus, (TF_Status*))                                                     \
  TARANTELLA_TF(void, TF_SetStatus, (TF_Status*, int code, const char* message))                         \
  TARANTELLA_TF(int, TF_GetCode, (const TF_Status*))                                                     \
  TARANTELLA_TF(const char*, TF_Message, (const TF_Status*))                                             \
  TARANTELLA_TF(void, TF_DeleteTensor, (TF_Tensor*))                                                     \
  TARANTELLA_TF(int, TF_TensorType, (const TF_Tensor*))                                                  \
  TARANTELLA_TF(size_t, TF_DataTypeSize, (int type))                                                     \
  TARANTELLA_TF(int, TF_NumDims, (const TF_Tensor*))                                                     \
  TARANTELLA_TF(int64_t, TF_Dim, (const TF_Tensor*, int))                                                \
  TARANTELLA_TF(void*, TF_TensorData, (const TF_Tensor*))                                                \
  TARANTELLA_TF(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char* name))                  \
  TARANTELLA_TF(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))             \
  TARANTELLA_TF(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))            \
  TARANTELLA_TF(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))           \
  TARANTELLA_TF(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                   \
                (TF_OpDefinitionBuilder*, TF_ShapeFunction))                                             \
  TARANTELLA_TF(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))              \
  TARANTELLA_TF(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                    \
  TARANTELLA_TF(TF_ShapeHandle*, TF_NewShapeHandle, ())                                                  \
  TARANTELLA_TF(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                           \
  TARANTELLA_TF(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                 \
  TARANTELLA_TF(void, TF_ShapeInferenceContextGetInput,                                                  \
                (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))                           \
  TARANTELLA_TF(void, TF_ShapeInferenceContextSetOutput,                                                 \
                (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))                           \
  TARANTELLA_TF(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))  \
  TARANTELLA_TF(TF_KernelBuilder*, TF_NewKernelBuilder,                                                  \
                (const char* op, const char* device, TF_CreateKernel, TF_Compute, TF_DeleteKernel))      \
  TARANTELLA_TF(TF_KernelBuilder*, TF_NewAsyncKernelBuilder,                                             \
                (const char* op, const char* device, TF_CreateKernel, TF_ComputeAsync, TF_DeleteKernel)) \
  TARANTELLA_TF(void, TF_RegisterKernelBuilder, (const char* name, TF_KernelBuilder*, TF_Status*))       \
  TARANTELLA_TF(void, TF_OpKernelConstruction_GetAttrInt64,                                              \
                (TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*))                           \
  TARANTELLA_TF(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))           \
  TARANTELLA_TF(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                     \
  TARANTELLA_TF(                                                                                         \
      TF_Tensor*, TF_NewTensor,                                                                          \
      (int type, const int64_t* dims, int dimensions, void* data, size_t bytes, TF_Deallocator, void*))  \
  TARANTELLA_TF(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))            \
  TARANTELLA_TF(void, TF_OpKernelConstruction_GetAttrSize,                                               \
                (TF_OpKernelConstruction*, const char*, int32_t* count, int32_t* bytes, TF_Status*))     \
  TARANTELLA_TF(void, TF_OpKernelConstruction_GetAttrInt64List,                                          \
                (TF_OpKernelConstruction*, const char*, int64_t*, int count, TF_Status*))                \
  TARANTELLA_TF(void, TF_OpKernelConstruction_GetAttrString,                                             \
                (TF_OpKernelConstruction*, const char*, char*, size_t length, TF_Status*))               \
  TARANTELLA_TF(void, TF_OpKernelConstruction_GetAttrBool,                                               \
                (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*))                     \
  TARANTELLA_TF(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                  \
  TARANTELLA_TF(int, TF_NumInputs, (TF_OpKernelContext*))                                                \
  TARANTELLA_TF(size_t, TF_TensorByteSize, (const TF_Tensor*))                                           \
  TARANTELLA_TF(int, TF_ExpectedOutputDataType, (TF_OpKernelContext*, int))                              \
  TARANTELLA_TF(TF_Tensor*, TF_AllocateOutput,                                                           \
                (TF_OpKernelContext*, int output, int type, const int64_t* dims, int dimensions,         \
                 size_t bytes, TF_Status*))                                                              \
  TARANTELLA_TF(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                             \
                (TF_OpKernelContext*, const int* inputs, int count, int output, const int64_t* dims,     \
                 int dimensions, int* forwarded, TF_Status*))                                            \
  TARANTELLA_TF(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))

struct Api {
#define TARANTELLA_TF(result, name, arguments) result(*name) arguments = nullptr;
  TARANTELLA_TF_FUNCTIONS
#undef TARANTELLA_TF
};

/// The functions of the TensorFlow that this process has loaded, or nullptr, after a line on stderr that names the
/// first one that is missing. Looked up once; thread-safe.
const Api* api();

/// The core's dtype for a TF_DataType; 0, which the core rejects, if there is none.
tnt_dtype dtype_of(int tf_type);

/// Registers an op and its kernel on the CPU. If TensorFlow fails to, prints the error to stderr and returns false.
bool register_op(TF_OpDefinitionBuilder* op, const char* name, TF_KernelBuilder* kernel);

/// A stateless kernel on the CPU: `compute` gets nullptr.
TF_KernelBuilder* new_kernel(const char* op, TF_Compute compute);

/// Infers that the first `count` outputs have the shapes of the inputs from number `first` on.
void pass_shapes(TF_ShapeInferenceContext* context, int64_t first, int64_t count, TF_Status* status);

/// Infers nothing about the outputs.
void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status);

/// Called when a run of an asynchronous kernel has ended.
using Done = std::function<void()>;
/// TensorFlow passes a pointer to a std::function on its caller's stack: it is moved out before the kernel returns.
Done moved_out(TF_AsyncOpKernelDoneCallback* done);
/// Ends the run, whose kernel TensorFlow may then destroy.
void call(Done& done);

/// A TF_Status for one call. Not copied.
class TfStatus {
 public:
  explicit TfStatus(const Api& api) : api_(api), status_(api.TF_NewStatus()) {}
  ~TfStatus() { api_.TF_DeleteStatus(status_); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;

  TF_Status* get() const { return status_; }
  bool ok() const { return api_.TF_GetCode(status_) == kOk; }
  void set(int code, const char* message) { api_.TF_SetStatus(status_, code, message); }

 private:
  const Api& api_;
  TF_Status* const status_;
};

/// All inputs of a running kernel. Not copied.
class Inputs {
 public:
  Inputs(TF_OpKernelContext* context, TfStatus& status) {
    const int count = api()->TF_NumInputs(context);
    for (int i = 0; i < count && status.ok(); ++i) {
      tensors_.push_back(nullptr);
      api()->TF_GetInput(context, i, &tensors_.back(), status.get());
    }
  }
  ~Inputs() {
    for (TF_Tensor* const tensor : tensors_) api()->TF_DeleteTensor(tensor);
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  const std::vector<TF_Tensor*>& tensors() const { return tensors_; }

 private:
  std::vector<TF_Tensor*> tensors_;
};

}  // namespace tarantella::tensorflow
