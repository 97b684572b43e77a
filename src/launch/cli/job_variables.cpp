#include "launch/cli/job_variables.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <iomanip>
#include <iterator>
#include <sstream>

namespace tarantella::launch {
namespace {

constexpr const char* kJobVariables[] = {
    "TNT_RANK",        "TNT_SIZE",          "TNT_LOCAL_RANK",  "TNT_LOCAL_SIZE",     "TNT_NODES",
    "TNT_JOB_ID",      "TNT_RANK_PID",      "TNT_LAUNCHER",    "TNT_RANK_STATUS_FD", "TNT_REPORT",
    "TNT_TIMELINE_FD", "TNT_RESTART_COUNT", "TNT_SNAPSHOT_FDS"};

}  // namespace

Result<std::string> new_job_id() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return Status::system("getrandom", errno);
  }
  std::ostringstream id;
  id << std::hex << std::setfill('0');
  for (const unsigned char byte : bytes) id << std::setw(2) << static_cast<unsigned>(byte);
  return id.str();
}

bool is_job_variable(const std::string& name) {
  return name == kJobMarkerVariable ||
         std::find(std::begin(kJobVariables), std::end(kJobVariables), name) != std::end(kJobVariables);
}

void remove_outer_job_variables(Environment& environment) {
  environment.erase("TNT_RANK_PID");  // also of a rank that srun or mpirun has started
  if (!environment.contains("TNT_RANK")) return;
  for (const char* name : kJobVariables) environment.erase(name);
  for (const char* name :
       {"TNT_TRANSPORT", "TNT_TIMELINE", "TNT_LOG_DIR", "TNT_LOG_LEVEL", "TNT_FUSION_THRESHOLD",
        "TNT_GATHER_LIMIT", "TNT_STALL_TIMEOUT", "TNT_MAX_RESTARTS", "TNT_OUTPUT_ON_ALL_DEVICES",
        "TNT_LOG_ON_ALL_DEVICES", "OMP_NUM_THREADS"}) {
    environment.erase(name);
  }
}

}  // namespace tarantella::launch
