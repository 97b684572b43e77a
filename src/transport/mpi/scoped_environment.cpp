#include "transport/mpi/scoped_environment.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <vector>

namespace tarantella::transport {
namespace {

struct Block {
  std::deque<std::string> strings;
  std::vector<char*> entries;  ///< ends with nullptr
};

std::string_view name_of(const char* entry) {
  const std::string_view all = entry;
  return all.substr(0, all.find('='));
}

/// setenv() may free the array, and unsetenv() moves its entries, while another thread reads it: here a new array takes
/// the place of the old one in one store, and nothing is ever freed.
void apply(const Variables& changes) {
  static auto* const kept = new std::deque<Block>;
  Block& block = kept->emplace_back();
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    if (!changes.contains(name_of(*each))) block.entries.push_back(*each);
  }
  for (const auto& [name, value] : changes) {
    if (value) block.entries.push_back(block.strings.emplace_back(name + '=' + *value).data());
  }
  block.entries.push_back(nullptr);
  std::atomic_ref(environ).store(block.entries.data(), std::memory_order_release);
}

}  // namespace

ScopedEnvironment::ScopedEnvironment(const Variables& changes) {
  for (const auto& [name, value] : changes) {
    const char* const before = getenv(name.c_str());
    before_.emplace(name, before == nullptr ? std::nullopt : std::optional<std::string>(before));
  }
  apply(changes);
}

ScopedEnvironment::~ScopedEnvironment() { apply(before_); }

}  // namespace tarantella::transport
