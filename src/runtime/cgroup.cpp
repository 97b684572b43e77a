#include "runtime/cgroup.h"

#include <fstream>
#include <sstream>

#include "base/status.h"

namespace tarantella::runtime {

std::vector<std::string> cgroup_folders(const std::string& controller, const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::vector<std::string> folders;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // hierarchy:controllers:path
    std::istringstream fields(line);
    std::string hierarchy, controllers, path;
    std::getline(fields, hierarchy, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    if (path == "/") path.clear();
    std::vector<std::string> tops;
    if (controllers.empty()) {
      tops = {mount, mount + "/unified"};  // v2, alone or beside v1
    } else if (text(",", controllers, ",").find(text(",", controller, ",")) != std::string::npos) {
      tops = {text(mount, "/", controller)};
    }
    for (size_t end = path.size(); end != std::string::npos;
         end = end == 0 ? std::string::npos : path.rfind('/', end - 1)) {
      for (const std::string& top : tops) folders.push_back(top + path.substr(0, end));
    }
  }
  return folders;
}

}  // namespace tarantella::runtime
