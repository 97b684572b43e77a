// The blocking collectives.

#include <string_view>

#include "capi/context.h"
#include "collective/across/operations.h"
#include "collective/operations.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;

namespace {

/// As on_context(), for blocking collectives: `body` takes the Stage, or the Across of a job on several nodes, whose
/// functions have the same names. The timeline shows `name`, or `operation` if it is empty.
template <typename Body>
tnt_code call(tnt_context* context, std::string_view operation, const char* name, Body body) noexcept {
  return on_context(context, [&](auto&) {
    const timeline::Span span(timeline::Kind::kExchange, text_of(name).empty() ? operation : text_of(name));
    return context->on_all_ranks([&](auto& ranks) { return ranks.call(body); });
  });
}

}  // namespace

extern "C" {

tnt_code tnt_allreduce(tnt_context* context, const void* input, void* output, size_t count, tnt_dtype dtype,
                       tnt_reduction reduction, const char* name) {
  return call(context, "allreduce", name, [&](auto& ranks) {
    return allreduce(ranks, input, output, count, static_cast<DType>(dtype),
                     static_cast<Reduction>(reduction), text_of(name));
  });
}

tnt_code tnt_reduce_scatter(tnt_context* context, const void* input, void* output, size_t count,
                            tnt_dtype dtype, tnt_reduction reduction, const char* name) {
  return call(context, "reduce_scatter", name, [&](auto& ranks) {
    return reduce_scatter(ranks, input, output, count, static_cast<DType>(dtype),
                          static_cast<Reduction>(reduction), text_of(name));
  });
}

tnt_code tnt_broadcast(tnt_context* context, void* data, size_t count, tnt_dtype dtype, int root,
                       const char* name) {
  return call(context, "broadcast", name, [&](auto& ranks) {
    return broadcast(ranks, data, count, static_cast<DType>(dtype), root, text_of(name));
  });
}

tnt_code tnt_allgather(tnt_context* context, const void* input, void* output, const uint64_t* counts,
                       tnt_dtype dtype, const char* name) {
  return call(context, "allgather", name, [&](auto& ranks) {
    return allgather(ranks, input, output, {counts, ranks.size()}, static_cast<DType>(dtype), text_of(name));
  });
}

tnt_code tnt_alltoall(tnt_context* context, const void* input, const uint64_t* send_counts, void* output,
                      const uint64_t* receive_counts, tnt_dtype dtype, const char* name) {
  return call(context, "alltoall", name, [&](auto& ranks) {
    return alltoall(ranks, input, {send_counts, ranks.size()}, output, {receive_counts, ranks.size()},
                    static_cast<DType>(dtype), text_of(name));
  });
}

tnt_code tnt_barrier(tnt_context* context, const char* name) {
  return call(context, "barrier", name, [&](auto& ranks) { return barrier(ranks, text_of(name)); });
}

}  // extern "C"
