#include "launch/system/message.h"

#include <unistd.h>

namespace tarantella::launch {

std::string message_line(const std::string& line) { return "tarantella: " + line + "\n"; }

void print_message(const std::string& line) {
  const std::string whole = message_line(line);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, whole.data(), whole.size());
}

int print_error(const Status& status, int otherwise) {
  if (!status.message().empty()) print_message(printable(status.message()));
  return status.code() == Code::kInvalidArgument ? kUsageError : otherwise;
}

std::string printable(const std::string& text) {
  std::string clean = text;
  for (char& letter : clean) {
    const auto code = static_cast<unsigned char>(letter);
    if (code < 0x20 || code == 0x7f) letter = '?';
  }
  return clean;
}

std::string ranges(const std::vector<int>& numbers) {
  std::string list;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(numbers[first]);
    if (last > first) list += text('-', numbers[last]);
    first = last + 1;
  }
  return list;
}

}  // namespace tarantella::launch
