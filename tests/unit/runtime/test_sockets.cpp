#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "own_folder.h"
#include "runtime/topology/sockets.h"

namespace tarantella::runtime {
namespace {

namespace fs = std::filesystem;

/// Has a folder like /sys, of a machine that a test describes.
class SocketsTest : public OwnFolder {
 protected:
  void add(int cpu, int package, const std::string& siblings, int node) {
    const fs::path folder = folder_ / "devices/system/cpu" / text("cpu", cpu);
    fs::create_directories(folder / "topology");
    fs::create_directories(folder / text("node", node));
    fs::create_directories(folder / "nodes");  // no node
    std::ofstream(folder / "topology/physical_package_id") << package << "\n";
    std::ofstream(folder / "topology/thread_siblings_list") << siblings << "\n";
  }
};

TEST_F(SocketsTest, HaveThreadsCoresAndMemory) {
  add(0, 0, "0,4", 0);
  add(1, 0, "1,5", 1);
  add(2, 7, "2-3", 2);
  add(3, 7, "2-3", 2);
  add(4, 0, "0,4", 0);
  add(5, 0, "1,5", 1);
  const std::vector<Socket> sockets = sockets_of({0, 1, 2, 3, 4, 5}, folder_);
  ASSERT_EQ(sockets.size(), 2u);
  EXPECT_EQ(sockets[0].cpus, (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(sockets[0].cores, 2);
  EXPECT_EQ(sockets[0].memory_nodes, (std::vector<int>{0, 1}));
  EXPECT_EQ(sockets[1].cores, 1);
  EXPECT_EQ(sockets[1].memory_nodes, std::vector<int>{2});
  EXPECT_EQ(sockets_of({2}, folder_).size(), 1u);
}

TEST_F(SocketsTest, WithoutFilesThereIsOneAndNoMemory) {
  const std::vector<Socket> sockets = sockets_of({3, 4}, folder_);
  ASSERT_EQ(sockets.size(), 1u);
  EXPECT_EQ(sockets[0].cores, 2);
  EXPECT_TRUE(sockets[0].memory_nodes.empty());
}

}  // namespace
}  // namespace tarantella::runtime
