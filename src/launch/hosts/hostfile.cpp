#include "launch/hosts/hostfile.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <system_error>

#include "base/number.h"
#include "launch/cli/options.h"
#include "launch/hosts/hostlist.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";
constexpr std::string_view kSlots = "slots=";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kMostBytes = size_t{16} << 20;

/// A word of a line, and its column from 1.
struct Word {
  std::string_view text;
  size_t column;
};

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  line = line.substr(0, line.find('#'));
  for (size_t start = line.find_first_not_of(kBlanks); start != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kBlanks, start), line.size());
    words.push_back({line.substr(start, end - start), start + 1});
    start = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

Status at(size_t column, const std::string& message) {
  return {Code::kInvalidArgument, text("column ", column, ": ", message)};
}

/// Reads the lines one after the other.
class Parser {
 public:
  Status add_line(std::string_view line) {
    ++line_;
    const std::vector<Word> words = words_of(line);
    if (words.empty()) return {};
    TNT_RETURN_IF_ERROR(check_letters(words[0]));
    std::vector<std::string> names;
    TNT_RETURN_IF_ERROR(expand_hostlist(words[0].text, words[0].column, names));
    std::optional<int> slots;
    for (size_t index = 1; index < words.size(); ++index)
      TNT_RETURN_IF_ERROR(read_slots(words[index], slots));
    TNT_RETURN_IF_ERROR(check_slots(words.back(), slots));
    for (const std::string& name : names) TNT_RETURN_IF_ERROR(add_host(words[0], name, slots));
    return {};
  }

  size_t line() const { return line_; }
  std::vector<Host> take_hosts() { return std::move(hosts_); }

 private:
  static Status check_letters(const Word& word) {
    if (const size_t user = word.text.find('@'); user != std::string_view::npos) {
      return at(word.column + user, "name the host alone; name the user in ~/.ssh/config (Host …, User …)");
    }
    if (std::count(word.text.begin(), word.text.end(), ':') > 1) {
      return at(word.column, "an IPv6 address cannot name a host here; give it a name in /etc/hosts");
    }
    int depth = 0;
    for (size_t index = 0; index < word.text.size(); ++index) {
      const char letter = word.text[index];
      depth += letter == '[' ? 1 : letter == ']' ? -1 : 0;
      if (letter == ',' && depth == 0)
        return at(word.column + index, "name one host per line, or write node[1,2]");
      if (letter == ':' && depth == 0) return at(word.column + index, "write 'host slots=4' for four ranks");
    }
    return {};
  }

  static Status read_slots(const Word& word, std::optional<int>& slots) {
    const std::string shown = printable(std::string(word.text));
    if (!word.text.starts_with(kSlots)) {
      return at(word.column, text("only slots=N may follow a name, not '", shown, "'"));
    }
    if (slots) return at(word.column, "slots are given twice");
    const std::string_view number = word.text.substr(kSlots.size());
    int value = 0;
    if (!to_number(number, value) || value < 1 || value > kMostRanks) {
      return at(word.column, text("slots are a whole number from 1 to ", kMostRanks, ", not '", shown, "'"));
    }
    slots = value;
    return {};
  }

  Status check_slots(const Word& word, const std::optional<int>& slots) {
    if (hosts_.empty()) {
      slots_ = slots;
      first_line_ = line_;
    }
    if (slots == slots_) return {};
    const auto shown = [](const std::optional<int>& each) {
      return each ? text("slots=", *each) : "no slots";
    };
    return at(word.column, text(shown(slots), " here, but ", shown(slots_), " in line ", first_line_,
                                ": all hosts of a job must be alike"));
  }

  Status add_host(const Word& word, const std::string& name, const std::optional<int>& slots) {
    const auto [known, is_new] = lines_.emplace(name, line_);
    if (!is_new) return at(word.column, text("host '", name, "' is already in line ", known->second));
    if (hosts_.size() == kMostHosts) return at(word.column, text("more than ", kMostHosts, " hosts"));
    hosts_.push_back({name, slots});
    return {};
  }

  size_t line_ = 0, first_line_ = 0;
  std::optional<int> slots_;  ///< of every host
  std::map<std::string, size_t> lines_;
  std::vector<Host> hosts_;
};

}  // namespace

Result<std::vector<Host>> parse_hostfile(std::string_view content, const std::string& name) {
  const std::string file = text("hostfile '", printable(name), "'");
  Parser parser;
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  for (bool at_end = false; !at_end;) {
    const size_t end = content.find('\n');
    const Status status = parser.add_line(content.substr(0, end));
    if (!status.ok()) {
      return Status(Code::kInvalidArgument, text(file, ", line ", parser.line(), ", ", status.message()));
    }
    at_end = end == std::string_view::npos;
    if (!at_end) content.remove_prefix(end + 1);
  }
  std::vector<Host> hosts = parser.take_hosts();
  if (hosts.empty()) {
    return Status(Code::kInvalidArgument, text(file, " names no host; write one name per line"));
  }
  return hosts;
}

Result<std::vector<Host>> read_hostfile(const std::string& path) {
  const auto cannot_read = [&](int error) {
    return Status(Code::kInvalidArgument, text("cannot read hostfile '", printable(path),
                                               "': ", std::generic_category().message(error)));
  };
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return cannot_read(errno);
  if (S_ISDIR(info.st_mode)) return cannot_read(EISDIR);
  std::ifstream in(path, std::ios::binary);
  if (!in) return cannot_read(errno);
  std::string content(kMostBytes, '\0');
  in.read(content.data(), static_cast<std::streamsize>(kMostBytes));
  content.resize(static_cast<size_t>(in.gcount()));
  if (content.size() == kMostBytes) {
    return Status(Code::kInvalidArgument,
                  text("hostfile '", printable(path), "' has more than 16 MiB: it is not a list of hosts"));
  }
  return in.bad() ? cannot_read(EIO) : parse_hostfile(content, path);
}

}  // namespace tarantella::launch
