#include "launch/cli/option_defaults.h"

#include "launch/system/environment.h"

namespace tarantella::launch {
namespace {

void set_if_missing(std::optional<std::string>& option, const Environment& environment,
                    const char* variable) {
  const std::string value = stripped_value(environment, variable);
  if (!option && !value.empty()) option = value;
}

}  // namespace

void apply_option_defaults(Options& options, Environment& environment) {
  for (const auto& [name, value] : options.variables) environment.insert_or_assign(name, value);
  if (!options.log_level) options.log_level = log_level_named(stripped_value(environment, "TNT_LOG_LEVEL"));
  options.output_on_all_devices |= is_on(environment, "TNT_OUTPUT_ON_ALL_DEVICES");
  options.log_on_all_devices |= is_on(environment, "TNT_LOG_ON_ALL_DEVICES");
  set_if_missing(options.timeline, environment, "TNT_TIMELINE");
  set_if_missing(options.log_dir, environment, "TNT_LOG_DIR");
  set_if_missing(options.start_timeout, environment, "TNT_START_TIMEOUT");
  set_if_missing(options.max_restarts, environment, "TNT_MAX_RESTARTS");
}

}  // namespace tarantella::launch
