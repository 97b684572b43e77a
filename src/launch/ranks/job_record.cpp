#include "launch/ranks/job_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <sstream>

#include "base/status.h"
#include "launch/system/environment.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr char kHead[] = "tarantella-job 1";

void write_line(int fd, const std::string& line) {
  const std::string whole = line + '\n';
  [[maybe_unused]] const ssize_t written = ::write(fd, whole.data(), whole.size());
}

std::string as_line(const char* role, pid_t pid) {
  return text(role, ' ', pid, ' ', start_time(pid).value_or(0));
}

/// Reads "123 456".
bool read_process(const std::string& word, ProcessId& process) {
  const char *first = word.data(), *end = word.data() + word.size();
  const auto [space, error] = std::from_chars(first, end, process.pid);
  if (error != std::errc() || space == end || *space != ' ' || process.pid <= 1) return false;
  const auto [last, start_error] = std::from_chars(space + 1, end, process.start);
  return start_error == std::errc() && last == end;
}

}  // namespace

std::optional<JobRecord> parse_job_record(std::string_view content) {
  std::istringstream in{std::string(content)};
  JobRecord record;
  std::string line;
  if (!std::getline(in, line) || line != kHead) return std::nullopt;
  while (std::getline(in, line)) {
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) return std::nullopt;
    const std::string name = line.substr(0, blank), value = line.substr(blank + 1);
    ProcessId process;
    if (name == "job") record.job = value;
    if (name == "boot") record.boot = value;
    if (name == "space") record.pid_namespace = value;
    if (name == "script") record.script = value;
    if (name != "launcher" && name != "rank") continue;
    if (!read_process(value, process)) return std::nullopt;
    if (name == "launcher") record.launcher = process;
    if (name == "rank") record.ranks.push_back(process);
  }
  const bool complete = record.job.size() >= 16 && !record.boot.empty() && record.launcher.pid != 0;
  return complete ? std::optional(std::move(record)) : std::nullopt;
}

std::vector<std::string> job_record_folders(const Environment& environment) {
  std::vector<std::string> folders;
  const std::string runtime = value_of(environment, "XDG_RUNTIME_DIR").value_or("");
  if (runtime.starts_with('/')) folders.push_back(runtime + "/tarantella");
  folders.push_back(text("/tmp/tarantella-", ::geteuid()));
  return folders;
}

Fd open_private_folder(const std::string& path, bool may_make) {
  if (may_make && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return {};
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  const bool is_private = folder.valid() && ::fstat(folder.get(), &info) == 0 && info.st_uid == ::geteuid() &&
                          (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return is_private ? std::move(folder) : Fd();
}

JobRecordFile::JobRecordFile(const Environment& environment, const std::string& job_id,
                             const std::string& script) {
  for (const std::string& path : job_record_folders(environment)) {
    const Fd folder = open_private_folder(path, true);
    if (!folder.valid()) continue;
    file_ = Fd(::openat(folder.get(), job_id.c_str(),
                        O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_.valid()) continue;
    path_ = text(path, '/', job_id);
    write_line(file_.get(), text(kHead, "\njob ", job_id, "\nboot ", boot_id(), "\nspace ", pid_namespace(),
                                 "\nscript ", printable(script), '\n', as_line("launcher", ::getpid())));
    return;
  }
}

JobRecordFile::~JobRecordFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void JobRecordFile::add_rank(pid_t pid) {
  if (file_.valid()) write_line(file_.get(), as_line("rank", pid));
}

}  // namespace tarantella::launch
