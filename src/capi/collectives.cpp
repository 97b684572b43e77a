// The blocking collectives.

#include <memory>
#include <string_view>

#include "capi/context.h"
#include "collective/operations.h"
#include "collective/shared_buffer.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;
using collective::SharedBuffer;
using collective::Stage;

struct tnt_buffer {
  std::unique_ptr<SharedBuffer> memory;
  tnt_context* context;
};

namespace {

/// As on_context(), for blocking collectives. The timeline shows `name`, or `operation` if it is empty.
template <typename Body>
tnt_code call(tnt_context* context, std::string_view operation, const char* name, Body body) noexcept {
  return on_context(context, [&](auto& communicator) {
    const timeline::Span span(timeline::Kind::kExchange, text_of(name).empty() ? operation : text_of(name));
    return communicator.call(body);
  });
}

}  // namespace

extern "C" {

tnt_code tnt_allreduce(tnt_context* context, const void* input, void* output, size_t count, tnt_dtype dtype,
                       tnt_reduction reduction, const char* name) {
  return call(context, "allreduce", name, [&](Stage& stage) {
    return collective::allreduce(stage, input, output, count, static_cast<DType>(dtype),
                                 static_cast<Reduction>(reduction), text_of(name));
  });
}

tnt_code tnt_reduce_scatter(tnt_context* context, const void* input, void* output, size_t count,
                            tnt_dtype dtype, tnt_reduction reduction, const char* name) {
  return call(context, "reduce_scatter", name, [&](Stage& stage) {
    return collective::reduce_scatter(stage, input, output, count, static_cast<DType>(dtype),
                                      static_cast<Reduction>(reduction), text_of(name));
  });
}

tnt_code tnt_broadcast(tnt_context* context, void* data, size_t count, tnt_dtype dtype, int root,
                       const char* name) {
  return call(context, "broadcast", name, [&](Stage& stage) {
    return collective::broadcast(stage, data, count, static_cast<DType>(dtype), root, text_of(name));
  });
}

tnt_code tnt_allgather(tnt_context* context, const void* input, void* output, const uint64_t* counts,
                       tnt_dtype dtype, const char* name) {
  return call(context, "allgather", name, [&](Stage& stage) {
    return collective::allgather(stage, input, output, {counts, stage.size()}, static_cast<DType>(dtype),
                                 text_of(name));
  });
}

tnt_code tnt_alltoall(tnt_context* context, const void* input, const uint64_t* send_counts, void* output,
                      const uint64_t* receive_counts, tnt_dtype dtype, const char* name) {
  return call(context, "alltoall", name, [&](Stage& stage) {
    return collective::alltoall(stage, input, {send_counts, stage.size()}, output,
                                {receive_counts, stage.size()}, static_cast<DType>(dtype), text_of(name));
  });
}

tnt_code tnt_barrier(tnt_context* context, const char* name) {
  return call(context, "barrier", name,
              [&](Stage& stage) { return collective::barrier(stage, text_of(name)); });
}

tnt_code tnt_buffer_create(tnt_context* context, size_t bytes, tnt_buffer** buffer) {
  return call(context, "buffer", nullptr, [&](Stage& stage) -> Status {
    auto memory = SharedBuffer::create(stage, bytes);
    if (!memory.ok()) return memory.status();
    *buffer = new tnt_buffer{std::move(memory).value(), context};
    return {};
  });
}

void* tnt_buffer_data(tnt_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->memory->own().data();
}

tnt_code tnt_buffer_allreduce(tnt_buffer* buffer, size_t count, tnt_dtype dtype, tnt_reduction reduction,
                              const char* name) {
  if (buffer == nullptr) return report(invalid("the buffer is NULL"));
  return call(buffer->context, "allreduce", name, [&](Stage& stage) {
    return buffer->memory->allreduce(stage, count, static_cast<DType>(dtype),
                                     static_cast<Reduction>(reduction), text_of(name));
  });
}

void tnt_buffer_release(tnt_buffer* buffer) { delete buffer; }

}  // extern "C"
