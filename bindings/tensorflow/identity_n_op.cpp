// TarantellaIdentityN: outputs its inputs without a copy, as TensorFlow's IdentityN, but the graph optimizer
// neither moves nor removes it.
//
// TarantellaAllreduce ends on a thread of the core. TensorFlow then gives each operation that waits for a sum to a
// thread of its own, one by one, and that thread wakes up and sleeps again for every one of them. With an identity in
// between, only the identity is handed over, and TensorFlow runs the short ones of the waiting operations on its
// thread.

#include "c_api.h"

namespace tarantella::tensorflow {
namespace {

void compute(void*, TF_OpKernelContext* context) {
  TfStatus status(*api());
  const Inputs inputs(context, status);
  for (size_t i = 0; i < inputs.tensors().size() && status.ok(); ++i)
    api()->TF_SetOutput(context, static_cast<int>(i), inputs.tensors()[i], status.get());
  if (!status.ok()) api()->TF_OpKernelContext_Failure(context, status.get());
}

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  pass_shapes(context, 0, api()->TF_ShapeInferenceContextNumInputs(context), status);
}

bool register_identity_n() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaIdentityN");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list(type)");
  api()->TF_OpDefinitionBuilderAddInput(op, "tensors: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "same: T");
  api()->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, same_shapes);
  return register_op(op, "TarantellaIdentityN", new_kernel("TarantellaIdentityN", compute));
}

[[maybe_unused]] const bool registered = register_identity_n();

}  // namespace
}  // namespace tarantella::tensorflow
