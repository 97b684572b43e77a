#include "launch/ending/failures.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace tarantella::launch {
namespace {

/// `text` without what differs between ranks that raise the same error: "rank 3" becomes "rank", "0x7f3a" is removed.
/// Not a std::regex, which recurses once per character: a long message would overflow the stack.
std::string without_numbers(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
  const auto end_of = [&](std::string_view letters, size_t from) {
    return std::min(text.find_first_not_of(letters, from), text.size());
  };
  std::string rest;
  for (size_t at = 0; at < text.size();) {
    size_t kept = 1, next = at + 1;
    for (const std::string_view word : {"rank", "pid", "device", "thread", "0x"}) {
      if (!text.substr(at).starts_with(word)) continue;
      const bool is_address = word == "0x";
      const size_t number = is_address ? at + word.size() : end_of(" _:=", at + word.size());
      const size_t end = end_of(is_address ? kHexDigits : kDigits, number);
      if (end == number) break;
      kept = is_address ? 0 : word.size();
      next = end;
      break;
    }
    rest += text.substr(at, kept);
    at = next;
  }
  return rest;
}

}  // namespace

void Failures::add(const Report& report) {
  if (report.kind == Report::Kind::kFailed) failed_.emplace(report.rank, report);
  if (report.kind == Report::Kind::kLost) lost_.emplace(report.rank, report);
}

const Report* Failures::find(int rank, Report::Kind kind) const {
  const auto& reports = kind == Report::Kind::kFailed ? failed_ : lost_;
  const auto found = reports.find(rank);
  return found == reports.end() ? nullptr : &found->second;
}

bool Failures::same_error(int one, int other) const {
  const Report* a = find(one, Report::Kind::kFailed);
  const Report* b = find(other, Report::Kind::kFailed);
  return a != nullptr && b != nullptr && !a->text.empty() &&
         without_numbers(a->text) == without_numbers(b->text);
}

int Failures::others_with_same_error(int rank) const {
  int count = 0;
  for (const auto& [other, report] : failed_) count += other != rank && same_error(rank, other) ? 1 : 0;
  return count;
}

}  // namespace tarantella::launch
