#pragma once
// std::atomic for fibers: each operation is a point at which another fiber may run.

#include <atomic>
#include <cstdint>
#include <cstring>

#include "explorer/fibers.h"

namespace tarantella::std {

using namespace ::std;

/// As std::atomic, with the same layout. Every operation is sequentially consistent.
template <typename T>
class atomic {
 public:
  static constexpr bool is_always_lock_free = ::std::atomic<T>::is_always_lock_free;
  using Where = ::explorer::Where;

  constexpr atomic() = default;
  constexpr atomic(T value) : value_(value) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

  T load(memory_order = memory_order_seq_cst, Where where = Where::current()) const {
    ::explorer::point_of_load(this, number(value_));
    note("load", where);
    return value_;
  }
  void store(T value, memory_order = memory_order_seq_cst, Where where = Where::current()) {
    (void)change("store", value, where);
  }
  T exchange(T value, memory_order = memory_order_seq_cst, Where where = Where::current()) {
    return change("exchange", value, where);
  }
  bool compare_exchange_strong(T& expected, T desired, memory_order = memory_order_seq_cst,
                               Where where = Where::current()) {
    ::explorer::point();
    const bool same = ::std::memcmp(&value_, &expected, sizeof(T)) == 0;
    if (same) value_ = desired;
    if (!same) expected = value_;
    note(same ? "changes" : "leaves", where);
    return same;
  }
  T fetch_add(T by, memory_order = memory_order_seq_cst, Where where = Where::current()) {
    ::explorer::point();
    const T before = value_;
    value_ = static_cast<T>(value_ + by);
    note("add", where);
    return before;
  }
  T fetch_sub(T by, memory_order = memory_order_seq_cst, Where where = Where::current()) {
    ::explorer::point();
    const T before = value_;
    value_ = static_cast<T>(value_ - by);
    note("subtract", where);
    return before;
  }

  operator T() const { return load(); }
  T operator=(T value) {
    store(value);
    return value;
  }
  T operator++() { return static_cast<T>(fetch_add(1) + 1); }
  T operator++(int) { return fetch_add(1); }
  T operator--() { return static_cast<T>(fetch_sub(1) - 1); }
  T operator--(int) { return fetch_sub(1); }

 private:
  static uint64_t number(const T& value) {
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof(bits));
    ::std::memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  T change(const char* operation, T value, Where where) {
    ::explorer::point();
    const T before = value_;
    value_ = value;
    note(operation, where);
    return before;
  }
  void note(const char* operation, Where where) const {
    ::explorer::note(operation, this, number(value_), where);
  }

  alignas(::std::atomic<T>) T value_{};
};

}  // namespace tarantella::std
