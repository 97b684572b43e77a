#pragma once
// The last operations of a run, for the report of a failure.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <source_location>
#include <string>

namespace explorer {

/// "plan.cpp:224"
inline std::string place(const std::source_location& where) {
  const char* name = std::strrchr(where.file_name(), '/');
  std::string found(name == nullptr ? where.file_name() : name + 1);
  found += ":";
  found += std::to_string(where.line());
  return found;
}

struct Event {
  const std::string* fiber;
  const char* operation;
  const void* address;
  uint64_t value;
  std::source_location where;

  /// The same operation on the same word, as in a loop that spins.
  bool repeats(const Event& other) const {
    return fiber == other.fiber && address == other.address && where.line() == other.where.line() &&
           std::strcmp(operation, other.operation) == 0;
  }
};

/// Keeps the newest kCapacity events.
class Trace {
 public:
  static constexpr size_t kCapacity = 60;

  void add(const Event& event) {
    if (!events_.empty() && events_.back().repeats(event)) events_.pop_back();
    events_.push_back(event);
    if (events_.size() > kCapacity) events_.pop_front();
  }

  /// A line for each event, oldest first: fiber, place, operation, word (numbered in order of appearance), value.
  std::string describe() const {
    std::string lines;
    std::map<const void*, size_t> words;
    for (const Event& event : events_) {
      const size_t word = words.emplace(event.address, words.size()).first->second;
      std::array<char, 200> line{};
      std::snprintf(line.data(), line.size(), "    %-22s %-22s %-10s word %-3zu %lld\n", event.fiber->c_str(),
                    place(event.where).c_str(), event.operation, word, static_cast<long long>(event.value));
      lines += line.data();
    }
    return lines;
  }

 private:
  std::deque<Event> events_;
};

}  // namespace explorer
