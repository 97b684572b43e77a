#include "launch/system/environment.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/status.h"

namespace tarantella::launch {

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string variable(*entry);
    const size_t equals = variable.find('=');
    if (equals != std::string::npos)
      environment.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::nullopt : std::optional(found->second);
}

std::string stripped_value(const Environment& environment, const std::string& name) {
  constexpr char kBlanks[] = " \t\n\v\f\r";
  const std::string value = value_of(environment, name).value_or("");
  const size_t first = value.find_first_not_of(kBlanks);
  if (first == std::string::npos) return "";
  return value.substr(first, value.find_last_not_of(kBlanks) + 1 - first);
}

bool is_on(const Environment& environment, const std::string& name) {
  const std::string value = stripped_value(environment, name);
  constexpr const char* kOff[] = {"", "0", "false", "no", "off"};
  return std::none_of(std::begin(kOff), std::end(kOff),
                      [&](const char* off) { return ::strcasecmp(value.c_str(), off) == 0; });
}

std::vector<std::string> to_envp(Environment environment, const EnvironmentOverrides& overrides) {
  for (const auto& [name, value] : overrides) environment.insert_or_assign(name, value);
  std::vector<std::string> envp;
  for (const auto& [name, value] : environment) envp.push_back(text(name, "=", value));
  return envp;
}

}  // namespace tarantella::launch
