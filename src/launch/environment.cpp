#include "launch/environment.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>

namespace tarantella::launch {

std::map<std::string, std::string> current_environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string word(*entry);
    const size_t equals = word.find('=');
    if (equals != std::string::npos) environment.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return environment;
}

Result<std::string> new_job_id() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return Status::system("getrandom", errno);
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (const unsigned char byte : bytes) {
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

void forget_outer_job(std::map<std::string, std::string>& environment) {
  if (!environment.contains("TNT_RANK")) return;
  for (const char* name : {"TNT_RANK", "TNT_SIZE", "TNT_LOCAL_RANK", "TNT_LOCAL_SIZE", "TNT_JOB_ID",
                           "TNT_LAUNCHER", "TNT_LOG_LEVEL", "TNT_FUSION_THRESHOLD",
                           "TNT_OUTPUT_ON_ALL_DEVICES", "TNT_LOG_ON_ALL_DEVICES", "OMP_NUM_THREADS"}) {
    environment.erase(name);
  }
}

Additions additions_for(int rank, const Plan& plan, const Options& options, const std::string& job_id,
                        const std::string& folder, const std::map<std::string, std::string>& user) {
  const auto index = static_cast<size_t>(rank);
  Additions added;
  added["TNT_RANK"] = added["TNT_LOCAL_RANK"] = std::to_string(rank);
  added["TNT_SIZE"] = added["TNT_LOCAL_SIZE"] = std::to_string(plan.ranks);
  added["TNT_JOB_ID"] = job_id;
  added["TNT_LAUNCHER"] = "1";
  if (options.log_level || !user.contains("TNT_LOG_LEVEL")) {
    added["TNT_LOG_LEVEL"] = options.log_level.value_or("WARNING");
  }
  if (options.fusion_threshold_kb) added["TNT_FUSION_THRESHOLD"] = *options.fusion_threshold_kb;
  if (options.output_on_all_devices) added["TNT_OUTPUT_ON_ALL_DEVICES"] = "1";
  if (options.log_on_all_devices) added["TNT_LOG_ON_ALL_DEVICES"] = "1";
  added["CUDA_VISIBLE_DEVICES"] = plan.gpus.empty() ? "-1" : plan.gpus[index];
  if (!plan.cores.empty() && !user.contains("OMP_NUM_THREADS")) {
    added["OMP_NUM_THREADS"] = std::to_string(plan.cores[index].cores);
  }
  if (!user.contains("PYTHONUNBUFFERED")) added["PYTHONUNBUFFERED"] = "1";
  const auto path = user.find("PATH");
  const std::string old_path = path == user.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  if (!folder.empty() && !(old_path + ":").starts_with(folder + ":")) added["PATH"] = folder + ":" + old_path;
  return added;
}

std::vector<std::string> joined(std::map<std::string, std::string> user, const Additions& additions) {
  for (const auto& [name, value] : additions) user.insert_or_assign(name, value);
  std::vector<std::string> words;
  for (const auto& [name, value] : user) words.push_back(name + "=" + value);
  return words;
}

}  // namespace tarantella::launch
