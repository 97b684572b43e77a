#include <gtest/gtest.h>

#include "launch/system/procfs.h"

namespace tarantella::launch {
namespace {

// As the files of a process that ends between opening and reading them.
TEST(Procfs, AFileThatOpensAndCannotBeReadIsEmpty) { EXPECT_EQ(read_file("/proc/self/mem"), ""); }

TEST(Procfs, AFileIsReadToItsEnd) { EXPECT_EQ(read_file("/proc/self/comm").back(), '\n'); }

TEST(Procfs, AFileThatIsMissingIsEmpty) { EXPECT_EQ(read_file("/proc/self/missing"), ""); }

}  // namespace
}  // namespace tarantella::launch
