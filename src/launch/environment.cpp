#include "launch/environment.h"

#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <utility>

#include "launch/guard.h"

namespace tarantella::launch {
namespace {

constexpr char kLogLevel[] = "TF_CPP_MIN_LOG_LEVEL";

constexpr const char* kOfTheJob[] = {"TNT_RANK",          "TNT_SIZE",   "TNT_LOCAL_RANK", "TNT_LOCAL_SIZE",
                                     "TNT_NODES",         "TNT_JOB_ID", "TNT_RANK_PID",   "TNT_LAUNCHER",
                                     "TNT_ATTENDANCE_FD", "TNT_REPORT", "TNT_TIMELINE_FD"};

std::string visible_gpus(const std::vector<std::string>& gpus, size_t index, bool all) {
  if (gpus.empty()) return "-1";
  if (!all) return gpus[index];
  std::string list;
  for (const std::string& gpu : gpus) list += (list.empty() ? "" : ",") + gpu;
  return list;
}

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string word(*entry);
    const size_t equals = word.find('=');
    if (equals != std::string::npos) environment.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::nullopt : std::optional(found->second);
}

std::string stripped(const Environment& environment, const std::string& name) {
  constexpr char kBlanks[] = " \t\n\v\f\r";
  const std::string value = value_of(environment, name).value_or("");
  const size_t first = value.find_first_not_of(kBlanks);
  if (first == std::string::npos) return "";
  return value.substr(first, value.find_last_not_of(kBlanks) + 1 - first);
}

bool is_on(const Environment& environment, const std::string& name) {
  const std::string word = stripped(environment, name);
  constexpr const char* kOff[] = {"", "0", "false", "no", "off"};
  return std::none_of(std::begin(kOff), std::end(kOff),
                      [&](const char* off) { return ::strcasecmp(word.c_str(), off) == 0; });
}

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

bool is_of_the_job(const std::string& name) {
  return name == kMark || std::find(std::begin(kOfTheJob), std::end(kOfTheJob), name) != std::end(kOfTheJob);
}

void forget_outer_job(Environment& environment) {
  environment.erase("TNT_RANK_PID");  // also of a rank that srun or mpirun has started
  if (!environment.contains("TNT_RANK")) return;
  for (const char* name : kOfTheJob) environment.erase(name);
  for (const char* name : {"TNT_TRANSPORT", "TNT_TIMELINE", "TNT_LOG_DIR", "TNT_LOG_LEVEL",
                           "TNT_FUSION_THRESHOLD", "TNT_GATHER_LIMIT", "TNT_STALL_TIMEOUT",
                           "TNT_OUTPUT_ON_ALL_DEVICES", "TNT_LOG_ON_ALL_DEVICES", "OMP_NUM_THREADS"}) {
    environment.erase(name);
  }
}

Additions additions_for(int rank, const Placement& placement, const Options& options,
                        const std::string& job_id, const std::string& folder, const Environment& user) {
  const auto index = static_cast<size_t>(rank);
  Additions added;
  const auto set = [&](const char* name, std::string value) { added.emplace(name, std::move(value)); };
  for (const char* name : {"TNT_RANK", "TNT_LOCAL_RANK"}) set(name, std::to_string(rank));
  for (const char* name : {"TNT_SIZE", "TNT_LOCAL_SIZE"}) set(name, std::to_string(placement.ranks));
  set("TNT_JOB_ID", job_id);
  set(kMark, job_id);
  set("TNT_LAUNCHER", "1");
  if (options.log_level || !user.contains("TNT_LOG_LEVEL")) {
    set("TNT_LOG_LEVEL", options.log_level.value_or("WARNING"));
  }
  if (options.fusion_threshold_kb) set("TNT_FUSION_THRESHOLD", *options.fusion_threshold_kb);
  if (options.gather_limit_mib) set("TNT_GATHER_LIMIT", *options.gather_limit_mib);
  if (options.stall_timeout) set("TNT_STALL_TIMEOUT", *options.stall_timeout);
  if (options.timeline) set("TNT_TIMELINE", *options.timeline);
  if (options.output_on_all_devices) set("TNT_OUTPUT_ON_ALL_DEVICES", "1");
  if (options.log_on_all_devices) set("TNT_LOG_ON_ALL_DEVICES", "1");
  set("CUDA_VISIBLE_DEVICES", visible_gpus(placement.gpus, index, options.all_gpus));
  // Otherwise TensorFlow takes all memory of a GPU at once, and a second job on it fails.
  const bool has_gpu = !placement.gpus.empty();
  if (has_gpu && !user.contains("TF_FORCE_GPU_ALLOW_GROWTH")) set("TF_FORCE_GPU_ALLOW_GROWTH", "true");
  if (!placement.cores.empty() && !user.contains("OMP_NUM_THREADS")) {
    set("OMP_NUM_THREADS", std::to_string(placement.cores[index].cores));
  }
  // Values of the user stay, even empty ones. A crash shows Python's stack; TensorFlow logs warnings, but no notes.
  for (const char* name : {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", kLogLevel}) {
    if (!user.contains(name)) set(name, "1");
  }
  const std::string old_path = value_of(user, "PATH").value_or(kUsualPath);
  if (!folder.empty() && !(old_path + ":").starts_with(folder + ":")) set("PATH", folder + ":" + old_path);
  for (const auto& [name, value] : options.variables)
    added.emplace(name, value);  // also in `user`; shown by --dry-run
  return added;
}

bool drops_start_lines(const Environment& user) { return value_of(user, kLogLevel).value_or("1") != "0"; }

std::vector<std::string> joined(Environment user, const Additions& additions) {
  for (const auto& [name, value] : additions) user.insert_or_assign(name, value);
  std::vector<std::string> words;
  for (const auto& [name, value] : user) words.push_back(text(name, "=", value));
  return words;
}

}  // namespace tarantella::launch
