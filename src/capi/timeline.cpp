// The timeline of this process.

#include "timeline/timeline.h"

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_count.h"
#include "base/host.h"
#include "capi/guard.h"
#include "timeline/json.h"
#include "timeline/memory.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;

namespace {

/// Never destroyed: threads of a framework may still record while the process ends.
struct Own {
  Mapping memory;
  timeline::Timeline records{memory.bytes()};
  int fork_count = tarantella::fork_count();
};

Own*& own() {
  static Own* started = nullptr;
  return started;
}

/// The timeline, if it is on and this process has started it.
timeline::Timeline* usable() {
  timeline::Timeline* const found = timeline::current().load(std::memory_order_acquire);
  return found != nullptr && own()->fork_count == fork_count() ? found : nullptr;
}

}  // namespace

extern "C" {

tnt_code tnt_timeline_start(int rank, int size) {
  return guarded([&]() -> Status {
    static std::mutex starting;
    const std::lock_guard lock(starting);
    if (own() != nullptr) return {};
    if (rank < 0 || rank >= size) return invalid(text("there is no rank ", rank, " of ", size));
    auto memory = timeline::Memory::inherited(rank, size);
    if (!memory) {
      if (std::getenv(timeline::Memory::kVariable) != nullptr)  // NOLINT(concurrency-mt-unsafe)
        return {Code::kSystem,
                "the process that started this rank closed the descriptors that it has from the launcher"};
      Result<Mapping> made = timeline::Memory::own();
      if (!made.ok()) return made.status();
      memory = std::move(made).value();
    }
    own() = new Own{std::move(*memory)};
    timeline::current().store(&own()->records, std::memory_order_release);
    return {};
  });
}

uint64_t tnt_timeline_begin(tnt_span kind, const char* name) {
  timeline::Timeline* const found = usable();
  return found == nullptr ? 0 : found->begin_span(static_cast<timeline::Kind>(kind), text_of(name));
}

void tnt_timeline_end(uint64_t span, int forget) {
  timeline::Timeline* const found = usable();
  if (found == nullptr) return;
  forget != 0 ? found->drop_span(span) : found->end_span(span);
}

void tnt_timeline_batch(int64_t rows) {
  if (timeline::Timeline* const found = usable()) found->batch(rows);
}

tnt_code tnt_timeline_write(const char* file, int rank, uint64_t* lost) {
  return guarded([&]() -> Status {
    const timeline::Timeline* const found = usable();
    if (found == nullptr) return invalid("the timeline is off");
    *lost = found->lost();
    TNT_RETURN_IF_ERROR(timeline::check_file(name_of(file)));
    return timeline::write_json(name_of(file), {{rank, host_name(), *found}});
  });
}

}  // extern "C"
