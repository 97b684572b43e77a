// TarantellaChecksum: a checksum of the bits of each input.

#include <cstring>
#include <vector>

#include "c_api.h"
#include "checksum.h"

namespace tarantella::tensorflow {
namespace {

void compute(void*, TF_OpKernelContext* context) {
  TfStatus status(*api());
  const Inputs inputs(context, status);
  std::vector<uint64_t> checksums;
  for (size_t i = 0; i < inputs.tensors().size() && status.ok(); ++i) {
    const TF_Tensor* tensor = inputs.tensors()[i];
    const size_t bytes = api()->TF_TensorByteSize(tensor);
    Checksum checksum;
    if (bytes != 0) checksum.add(static_cast<const std::byte*>(api()->TF_TensorData(tensor)), bytes);
    checksums.push_back(checksum.value());
  }
  if (status.ok()) {
    const auto count = static_cast<int64_t>(checksums.size());
    const size_t bytes = checksums.size() * sizeof checksums[0];
    TF_Tensor* output = api()->TF_AllocateOutput(context, 0, api()->TF_ExpectedOutputDataType(context, 0),
                                                 &count, 1, bytes, status.get());
    if (status.ok() && bytes != 0) std::memcpy(api()->TF_TensorData(output), checksums.data(), bytes);
    if (output != nullptr) api()->TF_DeleteTensor(output);
  }
  if (!status.ok()) api()->TF_OpKernelContext_Failure(context, status.get());
}

bool register_checksum() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaChecksum");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list(type)");
  api()->TF_OpDefinitionBuilderAddInput(op, "tensors: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "checksums: int64");
  return register_op(op, "TarantellaChecksum", new_kernel("TarantellaChecksum", compute));
}

[[maybe_unused]] const bool registered = register_checksum();

}  // namespace
}  // namespace tarantella::tensorflow
