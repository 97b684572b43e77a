#include "launch/settings.h"

#include "launch/hosts/allocation.h"

namespace tarantella::launch {
namespace {

void set_if_missing(std::optional<std::string>& option, const Environment& user, const char* variable) {
  const std::string value = stripped(user, variable);
  if (!option && !value.empty()) option = value;
}

}  // namespace

void complete(Options& options, Environment& user) {
  for (const auto& [name, value] : options.variables) user.insert_or_assign(name, value);
  if (!options.log_level) options.log_level = log_level_named(stripped(user, "TNT_LOG_LEVEL"));
  options.output_on_all_devices |= is_on(user, "TNT_OUTPUT_ON_ALL_DEVICES");
  options.log_on_all_devices |= is_on(user, "TNT_LOG_ON_ALL_DEVICES");
  set_if_missing(options.timeline, user, "TNT_TIMELINE");
  set_if_missing(options.log_dir, user, "TNT_LOG_DIR");
  set_if_missing(options.start_timeout, user, "TNT_START_TIMEOUT");
  options.slurm_gives_no_gpu = slurm_gives_no_gpu(user);
}

}  // namespace tarantella::launch
