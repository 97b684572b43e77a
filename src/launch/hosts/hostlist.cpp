#include "launch/hosts/hostlist.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tarantella::launch {
namespace {

constexpr size_t kLongestName = 253;  // of the domain name system
constexpr size_t kMostDigits = 9;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

bool may_stand_in_name(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '.' || letter == '-' ||
         letter == '_';
}

/// A text that is read from left to right.
class Reader {
 public:
  Reader(std::string_view list, size_t column) : text_(list), column_(column) {}

  bool at_end() const { return next_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[next_]; }
  void skip() { ++next_; }
  bool skip_if(char letter) {
    const bool found = !at_end() && peek() == letter;
    if (found) skip();
    return found;
  }
  std::string_view digits() {
    const size_t first = next_;
    while (!at_end() && is_digit(peek())) skip();
    return text_.substr(first, next_ - first);
  }
  size_t position() const { return next_; }

  Status mistake(const std::string& message) const { return mistake_at(next_, message); }
  Status mistake_at(size_t position, const std::string& message) const {
    return {Code::kInvalidArgument, text("column ", column_ + position, ": ", message)};
  }
  Status unexpected(const char* wanted) const {
    if (at_end()) return mistake(text(wanted, " is missing"));
    const bool is_plain = peek() > ' ' && peek() <= '~';
    return mistake(text("'", is_plain ? peek() : '?', "' stands where ", wanted, " belongs"));
  }

 private:
  std::string_view text_;
  size_t column_;
  size_t next_ = 0;
};

Status add_range(Reader& reader, std::vector<std::string>& numbers) {
  const size_t start = reader.position();
  const std::string_view first = reader.digits();
  if (first.empty()) return reader.unexpected("a number");
  const bool is_range = reader.skip_if('-');
  const std::string_view last = is_range ? reader.digits() : first;
  if (last.empty()) return reader.unexpected("a number");
  if (std::max(first.size(), last.size()) > kMostDigits) {
    return reader.mistake_at(start, text("a number of a host has at most ", kMostDigits, " digits"));
  }
  int from = 0, to = 0;
  std::from_chars(first.data(), first.data() + first.size(), from);
  std::from_chars(last.data(), last.data() + last.size(), to);
  if (from > to) return reader.mistake_at(start, text("the range ", first, "-", last, " runs backwards"));
  if (numbers.size() + static_cast<size_t>(to - from) >= kMostHosts) {
    return reader.mistake_at(start, text("more than ", kMostHosts, " hosts"));
  }
  for (int number = from; number <= to; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return {};
}

/// Reads what follows '[' and combines each of `names` with each number.
Status add_bracket(Reader& reader, std::vector<std::string>& names) {
  const size_t start = reader.position();
  std::vector<std::string> numbers;
  do {
    TNT_RETURN_IF_ERROR(add_range(reader, numbers));
  } while (reader.skip_if(','));
  if (reader.at_end()) return reader.mistake_at(start - 1, "this '[' is not closed");
  if (!reader.skip_if(']')) return reader.unexpected("',', '-' or ']'");
  if (names.size() * numbers.size() > kMostHosts) {
    return reader.mistake_at(start - 1, text("more than ", kMostHosts, " hosts"));
  }
  std::vector<std::string> combined;
  for (const std::string& name : names) {
    for (const std::string& number : numbers) combined.push_back(name + number);
  }
  names = std::move(combined);
  return {};
}

/// Reads one name up to a comma or the end.
Status add_name(Reader& reader, std::vector<std::string>& names) {
  const size_t start = reader.position();
  std::vector<std::string> found{""};
  while (!reader.at_end() && reader.peek() != ',') {
    const char letter = reader.peek();
    if (letter != '[' && !may_stand_in_name(letter)) return reader.unexpected("a name");
    reader.skip();
    if (letter == '[') {
      TNT_RETURN_IF_ERROR(add_bracket(reader, found));
    } else {
      for (std::string& name : found) name += letter;
    }
    if (found.front().size() > kLongestName) {
      return reader.mistake_at(start, text("a name has at most ", kLongestName, " characters"));
    }
  }
  if (found.front().empty()) return reader.unexpected("a name");
  if (std::isalnum(static_cast<unsigned char>(found.front().front())) == 0) {
    return reader.mistake_at(start, "a name begins with a letter or a digit");
  }
  if (names.size() + found.size() > kMostHosts) {
    return reader.mistake_at(start, text("more than ", kMostHosts, " hosts"));
  }
  names.insert(names.end(), found.begin(), found.end());
  return {};
}

}  // namespace

Status expand_hostlist(std::string_view list, size_t column, std::vector<std::string>& names) {
  Reader reader(list, column);
  do {
    TNT_RETURN_IF_ERROR(add_name(reader, names));
  } while (reader.skip_if(','));
  return {};
}

}  // namespace tarantella::launch
