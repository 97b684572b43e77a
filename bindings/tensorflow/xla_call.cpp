// The custom call that replaces the ops in graphs compiled by XLA: all gradients in, their sums over ranks out. XLA on
// the CPU runs such calls one after the other, so a step must have exactly one for each plan.
//
// XLA's C++ is not a stable interface: each piece is looked up by name and tried before it is used.

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>

#include "c_api.h"
#include "tarantella/tarantella.h"

/// The layout of XLA's own type; TensorFlow exports no function that sets it.
struct XlaCustomCallStatus_ {
  std::optional<std::string> message;  // set: the call has failed
};

namespace tarantella::tensorflow {
namespace {

/// `config` is "plan tensors numbered"; `output` is the one result, or points to the results. The input after the
/// tensors is the number of the training step if `numbered` is 1. Later inputs are not read: they keep the
/// calls of a step in order.
void allreduce(void* output, const void** inputs, const char* config, size_t length,
               XlaCustomCallStatus_* status) {
  const std::string numbers(config, length);
  char* rest = nullptr;
  const tnt_plan plan = std::strtoull(numbers.c_str(), &rest, 10);
  const size_t tensors = std::strtoull(rest, &rest, 10);
  const bool numbered = std::strtoull(rest, nullptr, 10) != 0;
  const auto training_step =
      numbered ? static_cast<uint32_t>(*static_cast<const int64_t*>(inputs[tensors])) : 0;
  void* const* outputs = tensors == 1 ? &output : static_cast<void**>(output);
  if (tnt_plan_run(plan, inputs, nullptr, outputs, tensors, training_step, nullptr) != TNT_OK)
    status->message = tnt_last_error();
}

template <typename Function>
Function look_up(const char* name) {
  void* tensorflow = ::dlopen("libtensorflow_cc.so.2", RTLD_NOLOAD | RTLD_LAZY);
  return reinterpret_cast<Function>(tensorflow == nullptr ? nullptr : ::dlsym(tensorflow, name));
}

/// Whether this TensorFlow reads a status in the layout that we write.
bool status_is_known() {
  // returns std::optional<absl::string_view>: of its layout only the size, and the flag after the view, are relied on
  using Message = std::optional<std::array<void*, 2>>;
  const auto message_of = look_up<Message (*)(const XlaCustomCallStatus_*)>(
      "_ZN3xla26CustomCallStatusGetMessageEPK20XlaCustomCallStatus_");
  if (message_of == nullptr) return false;
  const XlaCustomCallStatus_ good;
  const XlaCustomCallStatus_ bad{"a message too long to be stored in place"};
  const auto said = message_of(&bad);
  const auto points_at_message = [&](const void* pointer) { return pointer == bad.message->data(); };
  return !message_of(&good) && said && (points_at_message((*said)[0]) || points_at_message((*said)[1]));
}

bool register_with_xla() {
  class Registry;
  const auto global = look_up<Registry* (*)()>("_ZN3xla24CustomCallTargetRegistry6GlobalEv");
  const auto add = look_up<void (*)(Registry*, const std::string&, void*, const std::string&)>(
      "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEEPvS8_");
  if (global == nullptr || add == nullptr || !status_is_known()) return false;
  add(global(), "tarantella_allreduce", reinterpret_cast<void*>(allreduce), "Host");
  return true;
}

}  // namespace
}  // namespace tarantella::tensorflow

/// 1 if graphs compiled by XLA can call "tarantella_allreduce", else 0.
extern "C" TNT_API int tarantella_xla(void) {
  static const bool registered = tarantella::tensorflow::register_with_xla();
  return registered ? 1 : 0;
}
