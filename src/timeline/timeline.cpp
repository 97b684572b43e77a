#include "timeline/timeline.h"

namespace tarantella::timeline {
namespace {

uint32_t this_thread() {
  static std::atomic<uint32_t> threads{0};
  thread_local const uint32_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

void set_name(Record& record, std::string_view name) {
  std::memcpy(record.name.data(), name.data(), std::min(name.size(), Record::kName));
}

void publish(Record& record, Kind kind, uint32_t plan, size_t index) {
  record.plan = plan;
  record.index = static_cast<uint32_t>(index);
  record.kind.store(kind, std::memory_order_release);
}

}  // namespace

std::atomic<Timeline*>& current() {
  static std::atomic<Timeline*> timeline{nullptr};
  return timeline;
}

uint32_t new_plan() {
  static std::atomic<uint32_t> plans{0};
  return plans.fetch_add(1, std::memory_order_relaxed) + 1;
}

Record* Timeline::claim() {
  const uint64_t place = head_->claimed.fetch_add(1, std::memory_order_relaxed);
  return place < capacity_ ? records_ + place : nullptr;
}

uint64_t Timeline::begin_span(Kind kind, std::string_view name) {
  Record* record = claim();
  if (record == nullptr) return 0;
  record->begin = now();
  if (kind == Kind::kStep) head_->awaited_since.store(record->begin, std::memory_order_relaxed);
  record->thread = this_thread();
  set_name(*record, name);
  record->kind.store(kind, std::memory_order_release);
  return static_cast<uint64_t>(record - records_) + 1;
}

void Timeline::end_span(uint64_t span) {
  if (span != 0 && span <= capacity_) records_[span - 1].end.store(now(), std::memory_order_release);
}

void Timeline::drop_span(uint64_t span) {
  if (span != 0 && span <= capacity_)
    records_[span - 1].kind.store(Kind::kNothing, std::memory_order_release);
}

int64_t Timeline::gradient(uint32_t plan, size_t index) {
  const int64_t ready = now();
  if (Record* record = claim()) {
    record->begin = ready;
    publish(*record, Kind::kGradient, plan, index);
  }
  return ready;
}

Record* Timeline::begin_bucket(uint32_t plan, size_t index, int64_t begin) {
  Record* record = claim();
  if (record == nullptr) return nullptr;
  record->begin = begin;
  publish(*record, Kind::kBucket, plan, index);
  return record;
}

void Timeline::name(Kind kind, uint32_t plan, size_t index, std::string_view name) {
  Record* record = claim();
  if (record == nullptr) return;
  set_name(*record, name.substr(name.size() - std::min(name.size(), Record::kName)));
  publish(*record, kind, plan, index);
}

void Timeline::bucket_size(uint32_t plan, size_t index, size_t bytes) {
  Record* record = claim();
  if (record == nullptr) return;
  record->bytes = bytes;
  publish(*record, Kind::kBucketSize, plan, index);
}

void Timeline::batch(int64_t rows) {
  const int64_t ready = now();
  const int64_t since = head_->awaited_since.exchange(0, std::memory_order_relaxed);
  Record* record = claim();
  if (record == nullptr) return;
  record->begin = since == 0 ? ready : since;
  record->end.store(ready, std::memory_order_relaxed);
  record->rows = rows;
  publish(*record, Kind::kBatch, 0, 0);
}

}  // namespace tarantella::timeline
