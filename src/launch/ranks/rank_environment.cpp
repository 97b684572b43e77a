#include "launch/ranks/rank_environment.h"

#include <utility>

#include "launch/cli/job_variables.h"

namespace tarantella::launch {
namespace {

constexpr char kLogLevel[] = "TF_CPP_MIN_LOG_LEVEL";

std::string visible_gpus(const std::vector<std::string>& gpus, size_t index, bool all) {
  if (gpus.empty()) return "-1";
  if (!all) return gpus[index];
  std::string list;
  for (const std::string& gpu : gpus) list += (list.empty() ? "" : ",") + gpu;
  return list;
}

}  // namespace

EnvironmentOverrides overrides_for(int rank, const Placement& placement, const Options& options,
                                   const std::string& job_id, const std::string& folder,
                                   const Environment& environment) {
  const auto index = static_cast<size_t>(rank);
  EnvironmentOverrides overrides;
  const auto set = [&](const char* name, std::string value) { overrides.emplace(name, std::move(value)); };
  for (const char* name : {"TNT_RANK", "TNT_LOCAL_RANK"}) set(name, std::to_string(rank));
  for (const char* name : {"TNT_SIZE", "TNT_LOCAL_SIZE"}) set(name, std::to_string(placement.ranks));
  set("TNT_JOB_ID", job_id);
  set(kJobMarkerVariable, job_id);
  set("TNT_LAUNCHER", "1");
  if (options.log_level || !environment.contains("TNT_LOG_LEVEL")) {
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
  if (has_gpu && !environment.contains("TF_FORCE_GPU_ALLOW_GROWTH")) set("TF_FORCE_GPU_ALLOW_GROWTH", "true");
  if (!placement.cores.empty() && !environment.contains("OMP_NUM_THREADS")) {
    set("OMP_NUM_THREADS", std::to_string(placement.cores[index].cores));
  }
  // What the user has set stays, even if empty. A crash shows Python's stack; TensorFlow logs warnings, but no notes.
  for (const char* name : {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", kLogLevel}) {
    if (!environment.contains(name)) set(name, "1");
  }
  const std::string old_path = value_of(environment, "PATH").value_or(kDefaultPath);
  if (!folder.empty() && !(old_path + ":").starts_with(folder + ":")) set("PATH", folder + ":" + old_path);
  for (const auto& [name, value] : options.variables)
    overrides.emplace(name, value);  // also in `environment`; shown by --dry-run
  return overrides;
}

bool drops_startup_lines(const Environment& environment) {
  return value_of(environment, kLogLevel).value_or("1") != "0";
}

}  // namespace tarantella::launch
