#pragma once
// What one process does when: records of a fixed size in memory that was mapped before. Recording takes no lock and
// allocates nothing. The reader may be another process, also after this one was killed.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/clock.h"

namespace tarantella::timeline {

enum class Kind : uint32_t {
  kNothing = 0,  ///< not written, or not completely
  // spans: a thread enters and leaves, so those of a thread nest
  kCall = 1,      ///< a call of a user, such as fit
  kPart = 2,      ///< a part of a call
  kStep = 3,      ///< a step of training, evaluation or prediction
  kExchange = 4,  ///< a blocking collective
  // of a plan
  kGradient = 5,    ///< a gradient was submitted, at `begin`
  kBucket = 6,      ///< a bucket, from its first gradient to its sums
  kPlanName = 7,    ///< the name of a plan
  kTensorName = 8,  ///< the name of the tensor `index` of a plan
  kBucketSize = 9,  ///< the bytes of the bucket `index` of a plan
  // of no plan
  kBatch =
      10,  ///< a step of training has its batch, at `end`; it has awaited it since `begin`, if that is known
};

/// Nanoseconds on the monotonic clock, which all processes of a machine share.
inline int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// The inner times of a bucket on one rank; 0: not reached.
struct BucketParts {
  std::atomic<int64_t> full;     ///< its last gradient was submitted
  std::atomic<int64_t> summing;  ///< the values of all ranks were there
  std::atomic<int64_t> summed;   ///< this rank has summed its slice
  std::atomic<int64_t> failed;   ///< 1: the job failed before all sums were there
};

struct Record {
  static constexpr size_t kName = 32;

  int64_t begin;
  std::atomic<int64_t> end;  ///< of a span or a bucket; 0: it has not ended
  uint32_t plan;
  uint32_t index;  ///< of the tensor or the bucket
  std::atomic<Kind> kind;
  uint32_t thread;  ///< of a span: the number of its thread in this process, from 1 on
  union {
    std::array<char, kName> name;  ///< padded with zeros; without one at its end if it fills the array
    BucketParts parts;
    uint64_t bytes;
    int64_t rows;  ///< of a batch
  };

  std::string_view name_view() const { return {name.data(), ::strnlen(name.data(), kName)}; }
};
static_assert(sizeof(Record) == 64 && std::atomic<int64_t>::is_always_lock_free);

/// The records of a process: the first ones, as many as there is room for. Thread-safe. Does not own its memory, which
/// all threads that record, and the reader, keep mapped.
class Timeline {
 public:
  /// The bytes of memory for so many records.
  static constexpr size_t bytes_for(size_t records) { return sizeof(Head) + records * sizeof(Record); }

  /// In 64-byte aligned memory that was zeroed, or in that of another Timeline, whose records it then has.
  explicit Timeline(std::span<std::byte> memory)
      : head_(reinterpret_cast<Head*>(memory.data())),
        records_(reinterpret_cast<Record*>(head_ + 1)),
        capacity_((memory.size() - sizeof(Head)) / sizeof(Record)) {}

  /// Starts a span on this thread. Returns its number for end_span(); 0 if the memory is full.
  uint64_t begin_span(Kind kind, std::string_view name);
  /// Ends it, on the thread that began it. Ignores 0.
  void end_span(uint64_t span);
  /// Forgets it: as if it had never begun. Ignores 0.
  void drop_span(uint64_t span);

  /// Records that a gradient is ready, and returns when.
  int64_t gradient(uint32_t plan, size_t index);
  /// Records a bucket whose first gradient was ready at `begin`. Its `parts` and `end` may be set in the record that is
  /// returned; nullptr if the memory is full.
  Record* begin_bucket(uint32_t plan, size_t index, int64_t begin);
  /// Of a plan (`index` is 0) or of one of its tensors. Keeps the end of a name that is too long.
  void name(Kind kind, uint32_t plan, size_t index, std::string_view name);
  void bucket_size(uint32_t plan, size_t index, size_t bytes);
  /// Records that a step of training has its batch, of which this process has so many rows. The step's first batch is
  /// awaited from the step's begin on.
  void batch(int64_t rows);

  /// Marks the memory as that of a Timeline, whose time counts from `origin` on.
  void mark(int64_t origin) {
    head_->origin = origin;
    head_->magic = kMagic;
  }
  /// For a copy of another Timeline, which has `made` so many records in all: puts some of them behind the first `at`.
  void copy(uint64_t made, size_t at, std::span<const std::byte> records) {
    head_->claimed.store(made, std::memory_order_relaxed);
    if (!records.empty()) std::memcpy(static_cast<void*>(records_ + at), records.data(), records.size());
  }
  bool marked() const { return head_->magic == kMagic; }
  int64_t origin() const { return head_->origin; }

  /// All records so far; those of which `kind` is kNothing are not complete.
  std::span<const Record> records() const {
    return {records_, static_cast<size_t>(std::min<uint64_t>(claimed(), capacity_))};
  }
  /// How many there would be, had there been room for all.
  uint64_t made() const { return claimed(); }
  /// How many more that is.
  uint64_t lost() const { return claimed() - records().size(); }

 private:
  static constexpr uint64_t kMagic = 0x656e696c656d6974;  // "timeline"

  struct alignas(64) Head {
    uint64_t magic;
    int64_t origin;
    std::atomic<uint64_t> claimed;
    std::atomic<int64_t> awaited_since;  ///< 0: no batch is awaited
  };

  uint64_t claimed() const { return head_->claimed.load(std::memory_order_relaxed); }
  /// The next record, nullptr if there is no room.
  Record* claim();

  Head* head_;
  Record* records_;
  size_t capacity_;
};

/// The timeline of this process; nullptr while it is off. It is never destroyed once it is on, except in tests.
std::atomic<Timeline*>& current();

/// A number for a new plan, different from all others of this process.
uint32_t new_plan();

/// A span from its construction to its end, if the timeline is on.
class Span {
 public:
  Span(Kind kind, std::string_view name)
      : timeline_(current().load(std::memory_order_relaxed)),
        number_(timeline_ == nullptr ? 0 : timeline_->begin_span(kind, name)) {}
  ~Span() {
    if (timeline_ != nullptr) timeline_->end_span(number_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Timeline* const timeline_;
  const uint64_t number_;
};

}  // namespace tarantella::timeline
