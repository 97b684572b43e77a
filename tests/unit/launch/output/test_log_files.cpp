#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "launch/output/log_files.h"
#include "own_folder.h"

namespace tarantella::launch {
namespace {

namespace fs = std::filesystem;

class LogFilesTest : public OwnFolder {
 protected:
  std::string content(const std::string& name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(LogFilesTest, StreamsShareAFileAndCutNoLineOfEachOther) {
  Result<LogFiles> logs = LogFiles::open(folder_ / "new", 2);
  ASSERT_TRUE(logs.ok()) << logs.status().message();
  logs.value().write(1, false, "one, ");
  logs.value().write(1, true, "an error\nand ");
  logs.value().write(1, false, "two\n");
  EXPECT_EQ(content("new/rank-1.log"), "an error\none, two\n");
  logs.value().finish(1);
  EXPECT_EQ(content("new/rank-1.log"), "an error\none, two\nand ");
  EXPECT_EQ(content("new/rank-0.log"), "");
}

TEST_F(LogFilesTest, AnOlderJobKeepsItsFile) {
  Result<LogFiles> older = LogFiles::open(folder_, 1);
  fs::create_hard_link(folder_ / "rank-0.log", folder_ / "kept");
  Result<LogFiles> logs = LogFiles::open(folder_, 1);
  older.value().write(0, false, "older\n");
  logs.value().write(0, false, "newer\n");
  EXPECT_EQ(content("kept"), "older\n");
  EXPECT_EQ(content("rank-0.log"), "newer\n");
}

TEST_F(LogFilesTest, OnlyTheUserMayReadThem) {
  const mode_t before = ::umask(0);
  ASSERT_TRUE(LogFiles::open(folder_, 1).ok());
  ::umask(before);
  EXPECT_EQ(fs::status(folder_ / "rank-0.log").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(LogFilesTest, SaysOnceWhyItCannotWrite) {
  std::ofstream(folder_ / "file") << "";
  EXPECT_EQ(LogFiles::open(folder_ / "file", 1).status().message(),
            "cannot write logs to '" + (folder_ / "file/rank-0.log").string() + "': Not a directory");
  LogFiles none;
  none.write(7, false, "lost\n");
  none.finish(7);
  EXPECT_EQ(none.failure(), "");
}

}  // namespace
}  // namespace tarantella::launch
