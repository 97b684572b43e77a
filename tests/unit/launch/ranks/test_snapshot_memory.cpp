#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "launch/ranks/snapshot_memory.h"

namespace tarantella::launch {
namespace {

std::string snapshot(uint64_t sequence, const std::string& content = "content") {
  std::string bytes = content + std::string(SnapshotMemory::kMark);
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(sequence >> (8 * i) & 0xff);
  return bytes;
}

TEST(SnapshotMemory, HasNoneAtFirst) {
  EXPECT_EQ(SnapshotMemory().newest(), 0u);
  const SnapshotMemory memory = SnapshotMemory::make().value();
  EXPECT_EQ(memory.newest(), 0u);
  EXPECT_EQ(memory.read_newest(0, 100), "");
}

TEST(SnapshotMemory, KeepsTheNewestWholeOne) {
  SnapshotMemory memory = SnapshotMemory::make().value();
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{2}, uint64_t{258}, uint64_t{1} << 40}) {
    const std::string whole = snapshot(sequence, std::to_string(sequence));
    const uint64_t before = memory.newest();
    memory.clear_older();
    ASSERT_TRUE(memory.append_to_older(whole.substr(0, 5)));
    EXPECT_EQ(memory.newest(), before) << "half of one";
    ASSERT_TRUE(memory.append_to_older(whole.substr(5)));
    EXPECT_EQ(memory.newest(), sequence);
    EXPECT_EQ(memory.read_newest(0, 1000), whole);
    EXPECT_EQ(memory.read_newest(3, 2), whole.substr(3, 2));
    EXPECT_EQ(memory.read_newest(static_cast<off_t>(whole.size()), 10), "");
  }
}

TEST(SnapshotMemory, IgnoresWhatIsNotWhole) {
  SnapshotMemory memory = SnapshotMemory::make().value();
  ASSERT_TRUE(memory.append_to_older(snapshot(3)));
  for (const std::string& torn : {std::string("x"), std::string(1000, 'x'), snapshot(9) + "x"}) {
    memory.clear_older();
    ASSERT_TRUE(memory.append_to_older(torn));
    EXPECT_EQ(memory.newest(), 3u);
  }
}

TEST(SnapshotMemory, NamesTheDescriptorsThatChildrenInherit) {
  const SnapshotMemory memory = SnapshotMemory::make().value();
  const std::string numbers = memory.descriptors();
  const int first = std::atoi(numbers.c_str());
  const std::string whole = snapshot(7);
  ASSERT_EQ(::pwrite(first, whole.data(), whole.size(), 0), static_cast<ssize_t>(whole.size()));
  EXPECT_EQ(memory.newest(), 7u);
}

}  // namespace
}  // namespace tarantella::launch
