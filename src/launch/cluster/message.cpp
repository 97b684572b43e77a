#include "launch/cluster/message.h"

#include <charconv>
#include <cstdint>
#include <utility>

namespace tarantella::launch {
namespace {

constexpr size_t kHead = 8;
constexpr int kLastKind = static_cast<int>(Message::Kind::kAlive);

// Beyond all clocks; sums of some such times do not overflow.
constexpr int64_t kLatest = INT64_MAX / 8;

void put_number(std::string& bytes, size_t number) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((number >> shift) & 0xff);
}

size_t number_at(std::string_view bytes, size_t at) {
  size_t number = 0;
  for (size_t i = 0; i < 4; ++i) number |= size_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return number;
}

/// Words as one text, each behind its size.
class Packer {
 public:
  Packer& add(std::string_view word) {
    put_number(bytes_, word.size());
    bytes_ += word;
    return *this;
  }
  Packer& add(int64_t number) { return add(std::to_string(number)); }
  Packer& add(const std::vector<std::string>& words) {
    add(static_cast<int64_t>(words.size()));
    for (const std::string& word : words) add(word);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what a Packer has written. After a mistake all words are empty and ok() is false.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  std::string word() {
    const size_t size = rest_.size() < 4 ? 0 : number_at(rest_, 0);
    ok_ = ok_ && rest_.size() >= 4 && size <= rest_.size() - 4;
    if (!ok_) return "";
    std::string word(rest_.substr(4, size));
    rest_.remove_prefix(4 + size);
    return word;
  }
  int number() { return number_of<int>(); }
  /// A time or a difference of times.
  int64_t time() {
    const auto time = number_of<int64_t>();
    ok_ = ok_ && time > -kLatest && time < kLatest;
    return ok_ ? time : 0;
  }
  template <typename Number>
  Number number_of() {
    const std::string digits = word();
    Number number = 0;
    const char* end = digits.data() + digits.size();
    const auto [last, error] = std::from_chars(digits.data(), end, number);
    ok_ = ok_ && error == std::errc() && last == end;
    return ok_ ? number : 0;
  }
  /// A number of words that may follow: each has four bytes at least.
  int count() {
    const int count = number();
    ok_ = ok_ && count >= 0 && static_cast<size_t>(count) <= rest_.size() / 4;
    return ok_ ? count : 0;
  }
  std::vector<std::string> words() {
    std::vector<std::string> all;
    for (int left = count(); left > 0 && ok_; --left) all.push_back(word());
    return all;
  }
  /// Whether everything was read, and nothing was wrong.
  bool ok() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

std::string framed(Message::Kind kind, std::string_view content) {
  std::string frame;
  frame.reserve(kHead + content.size());
  put_number(frame, static_cast<size_t>(kind));
  put_number(frame, content.size());
  frame += content;
  return frame;
}

std::vector<Message> MessageReader::add(std::string_view data) {
  std::vector<Message> messages;
  if (broken_) return messages;
  pending_ += data;
  size_t at = 0;
  while (pending_.size() - at >= kHead) {
    const size_t kind = number_at(pending_, at), size = number_at(pending_, at + 4);
    broken_ = kind > static_cast<size_t>(kLastKind) || size > kLongest;
    if (broken_ || pending_.size() - at - kHead < size) break;
    messages.push_back({static_cast<Message::Kind>(kind), pending_.substr(at + kHead, size)});
    at += kHead + size;
  }
  pending_.erase(0, broken_ ? std::string::npos : at);
  return messages;
}

std::string content_of(const Hello& hello) {
  return Packer().add(hello.version).add(hello.host).add(hello.node).take();
}

std::optional<Hello> hello_in(const Message& message) {
  if (message.kind != Message::Kind::kHello) return std::nullopt;
  Unpacker in(message.content);
  Hello hello{in.word(), in.word(), in.number()};
  return in.ok() ? std::optional(std::move(hello)) : std::nullopt;
}

std::string content_of(const JobOrder& order) {
  Packer out;
  out.add(order.job_id).add(order.transport).add(order.folder);
  out.add(order.command.program).add(order.command.words);
  out.add(order.heeds_user_signals ? 1 : 0).add(order.chosen ? 1 : 0);
  out.add(static_cast<int64_t>(order.shares.size()));
  for (const HostShare& share : order.shares) out.add(share.host).add(share.first).add(share.ranks);
  return out.add(order.words).add(order.environment).take();
}

std::optional<JobOrder> order_in(const Message& message) {
  if (message.kind != Message::Kind::kJob) return std::nullopt;
  Unpacker in(message.content);
  JobOrder order;
  order.job_id = in.word();
  order.transport = in.word();
  order.folder = in.word();
  order.command.program = in.word();
  order.command.words = in.words();
  order.heeds_user_signals = in.number() != 0;
  order.chosen = in.number() != 0;
  for (int left = in.count(); left > 0; --left) {
    const HostShare share{in.word(), in.number(), in.number()};
    if (share.first < 0 || share.ranks < 1 || share.ranks > kMostRanks) return std::nullopt;
    order.shares.push_back(share);
  }
  order.words = in.words();
  order.environment = in.words();
  return in.ok() ? std::optional(std::move(order)) : std::nullopt;
}

std::string content_of(const Verdict& verdict) {
  return Packer().add(verdict.code).add(verdict.signal).add(verdict.words).take();
}

std::optional<Verdict> verdict_in(const Message& message) {
  if (message.kind != Message::Kind::kVerdict && message.kind != Message::Kind::kRefused) return std::nullopt;
  Unpacker in(message.content);
  Verdict verdict{in.number(), in.number(), in.word()};
  return in.ok() ? std::optional(std::move(verdict)) : std::nullopt;
}

std::string content_of(const Signals::Event& event) {
  return Packer().add(event.number).add(event.from_terminal ? 1 : 0).take();
}

std::optional<Signals::Event> signal_in(const Message& message) {
  if (message.kind != Message::Kind::kSignal) return std::nullopt;
  Unpacker in(message.content);
  const Signals::Event event{in.number(), in.number() != 0};
  return in.ok() && event.number > 0 ? std::optional(event) : std::nullopt;
}

std::string content_of(const std::vector<std::string>& warnings) { return Packer().add(warnings).take(); }

std::optional<std::vector<std::string>> warnings_in(const Message& message) {
  if (message.kind != Message::Kind::kReady) return std::nullopt;
  Unpacker in(message.content);
  std::vector<std::string> warnings = in.words();
  return in.ok() ? std::optional(std::move(warnings)) : std::nullopt;
}

std::string content_of(const std::vector<int>& states) {
  Packer out;
  out.add(static_cast<int>(states.size()));
  for (const int state : states) out.add(state);
  return out.take();
}

std::optional<std::vector<int>> states_in(const Message& message) {
  if (message.kind != Message::Kind::kAttendance) return std::nullopt;
  Unpacker in(message.content);
  std::vector<int> states;
  for (int left = in.count(); left > 0; --left) states.push_back(in.number());
  return in.ok() ? std::optional(std::move(states)) : std::nullopt;
}

std::string content_of(const Time& time) { return Packer().add(time.question).add(time.shown).take(); }

std::optional<Time> time_in(const Message& message) {
  if (message.kind != Message::Kind::kTime && message.kind != Message::Kind::kAskTime) return std::nullopt;
  Unpacker in(message.content);
  const Time time{in.number(), in.time()};
  return in.ok() ? std::optional(time) : std::nullopt;
}

std::string content_of(const timeline::Shift& clock) {
  Packer out;
  for (const timeline::Ahead& ahead : {clock.start(), clock.end()}) {
    out.add(ahead.time).add(ahead.by).add(ahead.within);
  }
  return out.take();
}

std::optional<timeline::Shift> clock_in(const Message& message) {
  if (message.kind != Message::Kind::kClock) return std::nullopt;
  Unpacker in(message.content);
  const timeline::Ahead start{in.time(), in.time(), in.time()}, end{in.time(), in.time(), in.time()};
  return in.ok() ? std::optional(timeline::Shift(start, end)) : std::nullopt;
}

std::string content_of(const Records& records) {
  return Packer().add(records.rank).add(records.made).add(records.bytes).take();
}

std::optional<Records> records_in(const Message& message) {
  if (message.kind != Message::Kind::kRecords) return std::nullopt;
  Unpacker in(message.content);
  Records records{in.number(), in.time(), in.word()};
  const bool valid = in.ok() && records.rank >= 0 && records.made >= 0;
  return valid ? std::optional(std::move(records)) : std::nullopt;
}

}  // namespace tarantella::launch
