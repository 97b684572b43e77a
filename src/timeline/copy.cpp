#include "timeline/copy.h"

#include <algorithm>
#include <span>

#include "timeline/memory.h"

namespace tarantella::timeline {

size_t Copy::kept() const { return static_cast<size_t>(std::min<uint64_t>(made_, kRecords)); }

void Copy::add(uint64_t made, std::string_view records) {
  if (begun() && made != made_) return;
  if (!begun()) {
    made_ = made;
    memory_.resize(Timeline::bytes_for(kept()) / sizeof(Line));
  }
  const size_t count = records.size() / sizeof(Record);
  if (records.size() % sizeof(Record) != 0 || count > kept() - added_) return;
  timeline().copy(made, added_, std::as_bytes(std::span(records)));
  added_ += count;
}

Timeline Copy::timeline() { return Timeline(std::as_writable_bytes(std::span(memory_))); }

}  // namespace tarantella::timeline
