// TarantellaBatch records in the timeline that a step has its batch. The output is the input, for others to depend on.
//
// It is marked stateful, because TensorFlow would otherwise run it only once if the number of rows is a constant.

#include "c_api.h"
#include "tarantella/tarantella.h"

namespace tarantella::tensorflow {
namespace {

void compute(void*, TF_OpKernelContext* context) {
  TfStatus status(*api());
  const Inputs inputs(context, status);
  if (status.ok()) {
    TF_Tensor* const rows = inputs.tensors()[0];
    tnt_timeline_batch(*static_cast<const int64_t*>(api()->TF_TensorData(rows)));
    api()->TF_SetOutput(context, 0, rows, status.get());
  }
  if (!status.ok()) api()->TF_OpKernelContext_Failure(context, status.get());
}

bool register_batch() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaBatch");
  api()->TF_OpDefinitionBuilderAddInput(op, "rows: int64");
  api()->TF_OpDefinitionBuilderAddOutput(op, "same: int64");
  api()->TF_OpDefinitionBuilderSetIsStateful(op, true);
  return register_op(op, "TarantellaBatch", new_kernel("TarantellaBatch", compute));
}

[[maybe_unused]] const bool registered = register_batch();

}  // namespace
}  // namespace tarantella::tensorflow
