#include "launch/output/line_filters.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace tarantella::launch {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
constexpr std::string_view kCrash = "Fatal Python error: ";  // of the interpreter itself, or of faulthandler
constexpr size_t kLastLines = 20;

bool continues_character(char byte) { return (static_cast<unsigned>(byte) & 0xc0U) == 0x80U; }

/// At most `length` bytes of `text` that end where a character ends (UTF-8; other bytes count as characters).
size_t whole_characters(std::string_view text, size_t length) {
  size_t end = length;
  while (end > 0 && length - end < 4 && end < text.size() && continues_character(text[end])) --end;
  return end > 0 && !(end < text.size() && continues_character(text[end])) ? end : length;
}

/// The start of the line with which the last traceback begins; npos if there is none.
size_t last_traceback(std::string_view text) {
  size_t found = text.rfind(kTraceback);
  while (found != std::string_view::npos) {
    const size_t line = found == 0 ? 0 : text.rfind('\n', found - 1) + 1;  // npos + 1 is 0
    const std::string_view before = text.substr(line, found - line);
    if (before.empty() || before == "  + Exception Group ") return line;
    found = text.rfind(kTraceback, found - 1);
  }
  return found;
}

bool matches(char wanted, char byte) { return wanted == '#' ? byte >= '0' && byte <= '9' : byte == wanted; }

/// Whether `line` begins with `pattern`, where '#' stands for any digit.
bool begins_with(std::string_view line, std::string_view pattern) {
  return line.size() >= pattern.size() && std::equal(pattern.begin(), pattern.end(), line.begin(), matches);
}

/// What TensorFlow and absl write before they know which messages are wanted.
constexpr std::string_view kStartupLines[] = {"WARNING: All log messages before absl::", "I0000 ##:##:"};

/// Whether TensorFlow or absl writes this line at every start.
bool is_chatter(std::string_view line) {
  constexpr std::string_view kMore[] = {"W0000 ##:##:", "To enable the following instructions: ",
                                        "####-##-## ##:##:##.######: I ", "####-##-## ##:##:##.######: W "};
  const auto fits = [&](std::string_view pattern) { return begins_with(line, pattern); };
  return std::any_of(std::begin(kStartupLines), std::end(kStartupLines), fits) ||
         std::any_of(std::begin(kMore), std::end(kMore), fits);
}

/// Whether a line that begins with `line`, which has no end yet, may be one of kStartupLines.
bool may_be_startup_line(std::string_view line) {
  return std::any_of(std::begin(kStartupLines), std::end(kStartupLines), [&](std::string_view pattern) {
    const size_t length = std::min(line.size(), pattern.size());
    return std::equal(pattern.begin(), pattern.begin() + length, line.begin(), matches);
  });
}

/// The last kLastLines lines that are not chatter, each ended by a newline.
std::string last_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < kLastLines) {
    const size_t before = text.size() < 2 ? std::string_view::npos : text.rfind('\n', text.size() - 2);
    const size_t start = before == std::string_view::npos ? 0 : before + 1;
    if (!is_chatter(text.substr(start, 60))) lines.push_back(text.substr(start));
    text.remove_suffix(text.size() - start);
  }
  std::string excerpt;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) excerpt += *line;
  return excerpt;
}

}  // namespace

void Tail::append(std::string_view data) {
  kept_ += data;
  if (kept_.size() > 2 * kBytes) {
    kept_.erase(0, kept_.size() - kBytes);
    cut_ = true;
  }
}

std::string Tail::excerpt() const {
  std::string_view tail = kept_;
  bool cut = cut_;
  if (tail.size() > kBytes) {
    tail.remove_prefix(tail.size() - kBytes);
    cut = true;
  }
  if (cut) {
    const size_t line_end = tail.find('\n');
    if (line_end != std::string_view::npos && line_end + 1 < tail.size()) {
      tail.remove_prefix(line_end + 1);
    } else {
      while (!tail.empty() && continues_character(tail.front())) tail.remove_prefix(1);
    }
  }
  size_t start = last_traceback(tail);
  const size_t crash = tail.rfind(kCrash);
  if (crash != std::string_view::npos && (start == std::string_view::npos || crash > start)) start = crash;
  std::string excerpt = start == std::string_view::npos ? last_lines(tail) : std::string(tail.substr(start));
  if (!excerpt.empty() && excerpt.back() != '\n') excerpt += '\n';
  return excerpt;
}

std::string StartupLineFilter::add(std::string_view data) {
  std::string passed;
  while (!data.empty()) {
    const size_t end = std::min(data.find('\n'), data.size() - 1) + 1;
    const bool ends = data[end - 1] == '\n';
    held_ += data.substr(0, end);
    data.remove_prefix(end);
    const bool may_be = !in_line_ && may_be_startup_line(held_);
    if (may_be && !ends) break;
    if (!may_be) passed += held_;
    held_.clear();
    in_line_ = !ends;
  }
  return passed;
}

std::string StartupLineFilter::finish() { return std::exchange(held_, {}); }

std::string LinePrefixer::prefixed(std::string_view line) const {
  std::string whole = text('[', label_, continues_ ? "+] " : "] ");
  whole += line;
  whole += '\n';
  return whole;
}

std::string LinePrefixer::add(std::string_view data) {
  std::string lines;
  while (!data.empty()) {
    const size_t end = data.find('\n');
    partial_ += data.substr(0, end);
    while (partial_.size() > kLongestLine) {
      const size_t piece = whole_characters(partial_, kLongestLine);
      lines += prefixed(std::string_view(partial_).substr(0, piece));
      partial_.erase(0, piece);
      continues_ = true;
    }
    if (end == std::string_view::npos) break;
    lines += prefixed(partial_);
    partial_.clear();
    continues_ = false;
    data.remove_prefix(end + 1);
  }
  return lines;
}

std::string LinePrefixer::finish() {
  std::string line = partial_.empty() ? "" : prefixed(partial_);
  partial_.clear();
  return line;
}

}  // namespace tarantella::launch
