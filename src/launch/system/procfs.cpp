#include "launch/system/procfs.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/status.h"

namespace tarantella::launch {

std::string read_file(const std::string& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();  // does not throw where a process ends while its files are read
  return std::move(content).str();
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* processes = ::opendir("/proc");
  if (processes == nullptr) return pids;
  while (const dirent* found = ::readdir(processes)) {
    pid_t pid = 0;
    const char* end = found->d_name + std::strlen(found->d_name);
    if (std::from_chars(found->d_name, end, pid).ptr == end) pids.push_back(pid);
  }
  ::closedir(processes);
  return pids;
}

std::optional<uint64_t> start_time(pid_t pid) {
  const std::string status = read_file(text("/proc/", pid, "/stat"));
  const size_t name_end = status.rfind(')');  // the name may have blanks and brackets
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream in(status.substr(name_end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(in), {}};
  constexpr size_t kStart = 19;  // field 22 of the file, counted from the one after the name
  uint64_t start = 0;
  if (fields.size() <= kStart || fields[0] == "Z" || fields[0] == "X") return std::nullopt;
  std::from_chars(fields[kStart].data(), fields[kStart].data() + fields[kStart].size(), start);
  return start;
}

bool is_own_and_runs(const ProcessId& process) {
  struct stat owner{};
  if (::stat(text("/proc/", process.pid).c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) return false;
  return start_time(process.pid) == process.start;
}

bool has_variable(pid_t pid, const std::string& entry) {
  const std::string environment = read_file(text("/proc/", pid, "/environ"));
  size_t start = 0;
  while (start < environment.size()) {
    const size_t end = std::min(environment.find('\0', start), environment.size());
    if (environment.compare(start, end - start, entry) == 0) return true;
    start = end + 1;
  }
  return false;
}

std::string boot_id() {
  std::string id = read_file("/proc/sys/kernel/random/boot_id");
  id.erase(std::remove(id.begin(), id.end(), '\n'), id.end());
  return id;
}

std::string pid_namespace() {
  char target[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/ns/pid", target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "";
}

bool is_resource_tracker(pid_t pid) {
  return read_file(text("/proc/", pid, "/cmdline")).find("multiprocessing.resource_tracker") !=
         std::string::npos;
}

}  // namespace tarantella::launch
