#include "c_api.h"

#include <dlfcn.h>

#include <cstdio>
#include <optional>
#include <utility>

namespace tarantella::tensorflow {
namespace {

void* look_up(const char* name) {
  for (const char* library : {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"}) {
    void* handle = ::dlopen(library, RTLD_NOLOAD | RTLD_LAZY);  // only what Python's import has loaded
    void* found = handle == nullptr ? nullptr : ::dlsym(handle, name);
    if (found != nullptr) return found;
  }
  std::fprintf(stderr, "tarantella: ERROR: this TensorFlow has no %s; use TensorFlow 2.16 or newer\n", name);
  return nullptr;
}

std::optional<Api> load() {
  Api loaded;
#define TARANTELLA_TF(result, name, arguments)                         \
  loaded.name = reinterpret_cast<result(*) arguments>(look_up(#name)); \
  if (loaded.name == nullptr) return std::nullopt;
  TARANTELLA_TF_FUNCTIONS
#undef TARANTELLA_TF
  return loaded;
}

}  // namespace

const Api* api() {
  static const std::optional<Api> loaded = load();
  return loaded ? &*loaded : nullptr;
}

tnt_dtype dtype_of(int tf_type) {
  switch (tf_type) {
    case 1:
      return TNT_FLOAT32;
    case 2:
      return TNT_FLOAT64;
    case 3:
      return TNT_INT32;
    case 4:
      return TNT_UINT8;
    case 5:
      return TNT_INT16;
    case 6:
      return TNT_INT8;
    case 9:
      return TNT_INT64;
    case 10:
      return TNT_BOOL;
    case 14:
      return TNT_BFLOAT16;
    case 17:
      return TNT_UINT16;
    case 19:
      return TNT_FLOAT16;
    case 22:
      return TNT_UINT32;
    case 23:
      return TNT_UINT64;
    default:
      return static_cast<tnt_dtype>(0);
  }
}

bool register_op(TF_OpDefinitionBuilder* op, const char* name, TF_KernelBuilder* kernel) {
  TfStatus status(*api());
  api()->TF_RegisterOpDefinition(op, status.get());
  if (status.ok()) api()->TF_RegisterKernelBuilder(name, kernel, status.get());
  if (!status.ok()) {
    std::fprintf(stderr, "tarantella: ERROR: the operation %s: %s\n", name, api()->TF_Message(status.get()));
  }
  return status.ok();
}

TF_KernelBuilder* new_kernel(const char* op, TF_Compute compute) {
  const auto create = [](TF_OpKernelConstruction*) -> void* { return nullptr; };
  const auto destroy = [](void*) {};
  return api()->TF_NewKernelBuilder(op, "CPU", create, compute, destroy);
}

void pass_shapes(TF_ShapeInferenceContext* context, int64_t first, int64_t count, TF_Status* status) {
  TF_ShapeHandle* shape = api()->TF_NewShapeHandle();
  for (int i = 0; i < count && api()->TF_GetCode(status) == kOk; ++i) {
    api()->TF_ShapeInferenceContextGetInput(context, static_cast<int>(first) + i, shape, status);
    if (api()->TF_GetCode(status) == kOk) api()->TF_ShapeInferenceContextSetOutput(context, i, shape, status);
  }
  api()->TF_DeleteShapeHandle(shape);
}

void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  api()->TF_ShapeInferenceContextSetUnknownShape(context, status);
}

Done moved_out(TF_AsyncOpKernelDoneCallback* done) { return std::move(*reinterpret_cast<Done*>(done)); }

void call(Done& done) {
  api()->TF_RunAsyncOpKernelDoneCallback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&done));
}

}  // namespace tarantella::tensorflow
