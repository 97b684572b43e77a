// The function that XLA calls in the training steps of Keras on JAX: the gradients of a step in, their sums over the
// ranks out.
//
// XLA on the CPU keeps calls in the order of their data only, and runs independent ones on several threads: a step has
// one call for all its gradients, and calls take a result of the one before. Each blocks a thread of XLA until the sums
// are there.

#include <exception>
#include <vector>

#include "ffi.h"
#include "tarantella/tarantella.h"

namespace tarantella::jax {
namespace {

Error* failed(const CallFrame& frame, const char* message) {
  ErrorCreateArgs args{{sizeof(ErrorCreateArgs), nullptr}, message, ErrorCode::internal};
  return frame.api->error_create(&args);
}

/// Whether XLA only asks for the version; then it is answered.
bool answer_metadata(const CallFrame& frame) {
  Extension* extension = frame.header.extension_start;
  if (extension == nullptr || extension->type != ExtensionType::metadata) return false;
  ApiVersion& version = reinterpret_cast<MetadataExtension*>(extension)->metadata->api_version;
  version.major_version = kMajorVersion;
  version.minor_version = kMinorVersion;
  return true;
}

Error* allreduce(const CallFrame& frame) {
  if (frame.attributes.size != 1 || frame.attributes.types[0] != kScalar)
    return failed(frame, "tarantella_allreduce needs one attribute, the plan");
  if (frame.arguments.size < frame.results.size)
    return failed(frame, "tarantella_allreduce needs an argument for each result");
  const auto plan =
      *static_cast<const tnt_plan*>(static_cast<const Scalar*>(frame.attributes.values[0])->value);
  const auto tensors = static_cast<size_t>(frame.results.size);
  std::vector<const void*> inputs(tensors);
  std::vector<void*> outputs(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    inputs[i] = frame.arguments.buffers[i]->data;
    outputs[i] = frame.results.buffers[i]->data;
  }
  const tnt_code code = tnt_plan_run(plan, inputs.data(), nullptr, outputs.data(), tensors, 0, nullptr);
  return code == TNT_OK ? nullptr : failed(frame, tnt_last_error());
}

}  // namespace
}  // namespace tarantella::jax

/// For jax.ffi.register_ffi_target. The attribute `plan`, an integer of 64 bits, is that of a plan with the tensors of
/// the results. As many arguments are summed; what comes after them is not read, and keeps calls in order.
extern "C" TNT_API tarantella::jax::Error* tarantella_jax_allreduce(tarantella::jax::CallFrame* frame) {
  using namespace tarantella::jax;
  if (answer_metadata(*frame)) return nullptr;
  try {
    return allreduce(*frame);
  } catch (const std::exception& error) {  // no memory
    return failed(*frame, error.what());
  }
}
