#include "launch/interpreter.h"

#include <string_view>

#include "launch/say.h"

namespace tarantella::launch {
namespace {

constexpr std::string_view kFlags = "bBdEiIOPqRsSuvx";
constexpr std::string_view kWithValue = "WX";
constexpr std::string_view kRuns = "mc";  // with a value; what follows belongs to the program

Status mistake(const std::string& message) { return {Code::kInvalidArgument, printable(message)}; }

}  // namespace

Result<std::optional<size_t>> script_behind_options(const std::vector<std::string>& words) {
  for (size_t index = 0; index < words.size(); ++index) {
    const std::string_view word = words[index];
    if (word == "-") return std::optional<size_t>();
    if (!word.starts_with('-')) return std::optional(index);
    for (size_t letter = 1; letter < word.size(); ++letter) {
      const char option = word[letter];
      const bool takes_value =
          (kWithValue.find(option) != kWithValue.npos) || (kRuns.find(option) != kRuns.npos);
      if (!takes_value && kFlags.find(option) == kFlags.npos) {
        return mistake(text("cannot read script '", word,
                            "': it is neither a file nor an option of Python such as -m, -c or -u"));
      }
      if (!takes_value) continue;
      const bool joined = letter + 1 < word.size();
      if (!joined && index + 1 == words.size()) return mistake(text("option '-", option, "' needs a value"));
      if (kRuns.find(option) != kRuns.npos) return std::optional<size_t>();
      if (!joined) ++index;
      break;
    }
  }
  return mistake("no script given after the options of Python");
}

}  // namespace tarantella::launch
