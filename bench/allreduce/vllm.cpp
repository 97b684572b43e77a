// vLLM's shared-memory allreduce for CPUs, called through torch's dispatcher. vllm_rank.py loads it into Python.

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <map>

#include "loop.h"

namespace {

c10::IValue call(const char* operation, std::vector<c10::IValue> arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(operation, "").callBoxed(&arguments);
  return arguments.at(0);
}

}  // namespace

extern "C" void run(const char* file, const char* sizes, int rank, const char* job) {
  bench::Loop loop(file, sizes, rank);
  at::set_num_threads(1);
  std::string name = std::string("/") + job;
  int64_t handle =
      call("_C::init_shm_manager", {name, int64_t{bench::kRanks}, int64_t{rank}, int64_t{1}}).toInt();
  loop.meet();
  call("_C::join_shm_manager", {handle, name});
  loop.meet();
  shm_unlink((name + "_" + std::to_string(rank)).c_str());

  auto allreduce = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("_C::shm_allreduce", "")
                       .typed<void(int64_t, at::Tensor&)>();
  float* data = loop.private_buffer();
  std::map<size_t, at::Tensor> tensors;  // created outside the timed calls
  for (size_t bytes : bench::parse_sizes(sizes)) {
    int64_t count = static_cast<int64_t>(bytes / sizeof(float));
    tensors[count] = at::from_blob(data, {count}, at::kFloat);
  }
  size_t last = 0;
  at::Tensor* tensor = nullptr;
  loop.measure("vllm", data, [&](float*, size_t count) {
    if (count != last) tensor = &tensors.at(last = count);
    allreduce.call(handle, *tensor);
  });
}
