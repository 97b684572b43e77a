#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "launch/ranks/job_record.h"
#include "own_folder.h"

namespace tarantella::launch {
namespace {

namespace fs = std::filesystem;

constexpr char kJob[] = "0123456789abcdef0123456789abcdef";

class JobRecordTest : public OwnFolder {
 protected:
  Environment environment() const { return {{"XDG_RUNTIME_DIR", folder_.string()}}; }
};

TEST_F(JobRecordTest, LivesAsLongAsItsOwner) {
  std::string path;
  {
    JobRecordFile record(environment(), kJob, "a\nb.py");
    record.add_rank(::getpid());
    path = record.path();
    EXPECT_EQ(path, (folder_ / "tarantella" / kJob).string());
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    const auto read = parse_job_record(read_file(path));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->job, kJob);
    EXPECT_EQ(read->boot, boot_id());
    EXPECT_EQ(read->pid_namespace, pid_namespace());
    EXPECT_EQ(read->script, "a?b.py");
    EXPECT_EQ(read->launcher, (ProcessId{::getpid(), start_time(::getpid()).value()}));
    EXPECT_EQ(read->ranks, std::vector<ProcessId>{read->launcher});
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(JobRecordTest, IsNotWrittenWhereOthersCanWrite) {
  fs::create_directory(folder_ / "open");
  ::chmod((folder_ / "open").c_str(), 0777);
  fs::create_directory_symlink(folder_, folder_ / "link");
  EXPECT_FALSE(open_private_folder(folder_ / "open", true).valid());
  EXPECT_FALSE(open_private_folder(folder_ / "link", true).valid());
  EXPECT_FALSE(open_private_folder(folder_ / "none", false).valid());
  EXPECT_TRUE(open_private_folder(folder_ / "none", true).valid());
}

TEST(AJobRecord, ThatIsBrokenIsNone) {
  const std::string whole =
      "tarantella-job 1\njob 0123456789abcdef\nboot x\nlauncher 12 34\nscript a b\nrank 13 35\n";
  ASSERT_TRUE(parse_job_record(whole).has_value());
  EXPECT_EQ(parse_job_record(whole)->script, "a b");
  for (const std::string broken :
       {"", "tarantella-job 2\n", "tarantella-job 1\n", "tarantella-job 1\njob 0123456789abcdef\nboot x\n"}) {
    EXPECT_FALSE(parse_job_record(broken).has_value()) << broken;
  }
  for (const char* process :
       {"rank", "rank 1", "rank 1 2", "rank -5 2", "rank 12 x", "rank 12 3 4", "rank x 2"}) {
    EXPECT_FALSE(parse_job_record(whole + process + "\n").has_value()) << process;
  }
}

TEST(Processes, AreToldByTheirStart) {
  const ProcessId own{::getpid(), start_time(::getpid()).value()};
  EXPECT_TRUE(is_own_and_runs(own));
  EXPECT_FALSE(is_own_and_runs({own.pid, own.start + 1}));
  EXPECT_FALSE(start_time(0).has_value());
  EXPECT_FALSE(boot_id().empty());
  ::setenv("NOT_AT_START", "1", 1);
  EXPECT_FALSE(has_variable(own.pid, "NOT_AT_START=1"));
}

}  // namespace
}  // namespace tarantella::launch
