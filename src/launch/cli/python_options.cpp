#include "launch/cli/python_options.h"

#include <string_view>

#include "launch/system/environment.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr std::string_view kFlags = "bBdEiIOPqRsSuvx";
constexpr std::string_view kWithValue = "WX";
constexpr std::string_view kRuns = "mc";  // with a value; what follows belongs to the program

Status error(const std::string& message) { return {Code::kInvalidArgument, printable(message)}; }

}  // namespace

Result<std::optional<size_t>> script_after_options(const std::vector<std::string>& arguments) {
  for (size_t index = 0; index < arguments.size(); ++index) {
    const std::string_view argument = arguments[index];
    if (argument == "-") return std::optional<size_t>();
    if (!argument.starts_with('-')) return std::optional(index);
    for (size_t letter = 1; letter < argument.size(); ++letter) {
      const char option = argument[letter];
      const bool takes_value =
          (kWithValue.find(option) != kWithValue.npos) || (kRuns.find(option) != kRuns.npos);
      if (!takes_value && kFlags.find(option) == kFlags.npos) {
        return error(text("cannot read script '", argument,
                          "': it is neither a file nor an option of Python such as -m, -c or -u"));
      }
      if (!takes_value) continue;
      const bool joined = letter + 1 < argument.size();
      if (!joined && index + 1 == arguments.size())
        return error(text("option '-", option, "' needs a value"));
      if (kRuns.find(option) != kRuns.npos) return std::optional<size_t>();
      if (!joined) ++index;
      break;
    }
  }
  return error("no script given after the options of Python");
}

}  // namespace tarantella::launch
