// The blocking collectives.

#include <memory>
#include <span>
#include <string_view>

#include "capi/context.h"
#include "capi/owner.h"
#include "capi/stream.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;

namespace {

using collective::Communicator;

/// As on_context(), for blocking collectives: `body` takes the communicator. The timeline shows `name`, or `operation`
/// if it is empty.
template <typename Body>
tnt_code call(tnt_context* context, std::string_view operation, const char* name, void* stream,
              Body body) noexcept {
  return on_context(context, [&](engine::Context& engine_context) -> Status {
    TNT_RETURN_IF_ERROR(check_stream(stream));
    const timeline::Span span(timeline::Kind::kExchange, text_of(name).empty() ? operation : text_of(name));
    return engine_context.call(body);
  });
}

std::span<const uint64_t> of_ranks(const uint64_t* counts, const Communicator& comm) {
  return {counts, static_cast<size_t>(comm.size())};
}

}  // namespace

extern "C" {

tnt_code tnt_allreduce(tnt_context* context, const void* input, void* output, size_t count, tnt_dtype dtype,
                       tnt_reduction reduction, const char* name, void* stream, tnt_released released,
                       void* user) {
  std::shared_ptr<const void> owner;
  if (const tnt_code code = make_owner(released, user, owner); code != TNT_OK) return code;
  return call(context, "allreduce", name, stream, [&](Communicator& comm) {
    return comm.allreduce(input, output, count, static_cast<DType>(dtype), static_cast<Reduction>(reduction),
                          text_of(name), owner);
  });
}

tnt_code tnt_reduce_scatter(tnt_context* context, const void* input, void* output, size_t count,
                            tnt_dtype dtype, tnt_reduction reduction, const char* name, void* stream) {
  return call(context, "reduce_scatter", name, stream, [&](Communicator& comm) {
    return comm.reduce_scatter(input, output, count, static_cast<DType>(dtype),
                               static_cast<Reduction>(reduction), text_of(name));
  });
}

tnt_code tnt_broadcast(tnt_context* context, void* data, size_t count, tnt_dtype dtype, int root,
                       const char* name, void* stream) {
  return call(context, "broadcast", name, stream, [&](Communicator& comm) {
    return comm.broadcast(data, count, static_cast<DType>(dtype), root, text_of(name));
  });
}

tnt_code tnt_allgather(tnt_context* context, const void* input, void* output, const uint64_t* counts,
                       tnt_dtype dtype, const char* name, void* stream) {
  return call(context, "allgather", name, stream, [&](Communicator& comm) {
    return comm.allgather(input, output, of_ranks(counts, comm), static_cast<DType>(dtype), text_of(name));
  });
}

tnt_code tnt_alltoall(tnt_context* context, const void* input, const uint64_t* send_counts, void* output,
                      const uint64_t* receive_counts, tnt_dtype dtype, const char* name, void* stream) {
  return call(context, "alltoall", name, stream, [&](Communicator& comm) {
    return comm.alltoall(input, of_ranks(send_counts, comm), output, of_ranks(receive_counts, comm),
                         static_cast<DType>(dtype), text_of(name));
  });
}

tnt_code tnt_barrier(tnt_context* context, const char* name) {
  return call(context, "barrier", name, nullptr,
              [&](Communicator& comm) { return comm.barrier(text_of(name)); });
}

}  // extern "C"
