// TarantellaChecksum: one checksum of the bits of all inputs.

#include <cstring>

#include "c_api.h"
#include "checksum.h"

namespace tarantella::tensorflow {
namespace {

void compute(void*, TF_OpKernelContext* context) {
  TfStatus status(*api());
  const Inputs inputs(context, status);
  Checksum checksum;
  for (size_t i = 0; i < inputs.tensors().size() && status.ok(); ++i) {
    const TF_Tensor* tensor = inputs.tensors()[i];
    const size_t bytes = api()->TF_TensorByteSize(tensor);
    if (bytes != 0) checksum.add(static_cast<const std::byte*>(api()->TF_TensorData(tensor)), bytes);
  }
  const uint64_t value = checksum.value();
  if (status.ok()) {
    TF_Tensor* output = api()->TF_AllocateOutput(context, 0, api()->TF_ExpectedOutputDataType(context, 0),
                                                 nullptr, 0, sizeof value, status.get());
    if (status.ok()) std::memcpy(api()->TF_TensorData(output), &value, sizeof value);
    if (output != nullptr) api()->TF_DeleteTensor(output);
  }
  if (!status.ok()) api()->TF_OpKernelContext_Failure(context, status.get());
}

bool register_checksum() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaChecksum");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list(type)");
  api()->TF_OpDefinitionBuilderAddInput(op, "tensors: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "checksum: int64");
  return register_op(op, "TarantellaChecksum", new_kernel("TarantellaChecksum", compute));
}

[[maybe_unused]] const bool registered = register_checksum();

}  // namespace
}  // namespace tarantella::tensorflow
