#include "launch/cli/versions.h"

#include <sstream>

#include "base/clock.h"
#include "base/status.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"
#include "launch/system/run_program.h"

namespace tarantella::launch {
namespace {

constexpr Duration kPatience = 10s;
constexpr char kQuestion[] =
    "import importlib.metadata as m, platform\n"
    "print(platform.python_version(), next((d.version for d in m.distributions(name='tarantella')), ''))";

}  // namespace

Versions query_versions(const Command& command, const Environment& environment) {
  const std::string name = command.program.substr(command.program.rfind('/') + 1);
  Versions versions;
  if (!name.starts_with("python")) return versions;
  std::istringstream in(
      run_program({command.program, {command.program, "-c", kQuestion}}, environment, kPatience));
  in >> versions.python >> versions.tarantella;
  return versions;
}

std::string version_warning(const Versions& versions) {
  if (versions.python.empty() || versions.tarantella == TARANTELLA_VERSION) return "";
  if (versions.tarantella.empty())
    return "this Python has no package tarantella; install it there, or name another";
  return text("this Python has tarantella ", versions.tarantella, ", but the launcher is ",
              TARANTELLA_VERSION, "; install one of them again");
}

}  // namespace tarantella::launch
