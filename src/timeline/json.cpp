#include "timeline/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>
#include <utility>

#include "base/fd.h"

namespace tarantella::timeline {
namespace {

using Key = std::pair<uint32_t, uint32_t>;  // of a plan, and of its tensor or bucket

/// A file that is written in large pieces. After an error it takes no more.
class Output {
 public:
  explicit Output(const std::string& file)
      : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (!fd_.valid()) error_ = errno;
  }

  void put(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() > kPiece) flush();
  }
  /// The first error, as an errno value; 0: all is written.
  int close() {
    flush();
    return error_;
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 18;

  void flush() {
    std::string_view rest(buffer_);
    while (error_ == 0 && !rest.empty()) {
      const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
      if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
      if (written < 0 && errno != EINTR) error_ = errno;
    }
    buffer_.clear();
  }

  Fd fd_;
  std::string buffer_;
  int error_ = 0;
};

/// `text` as a string of JSON. Bytes that are not ASCII stay where they are whole characters, else become '?'.
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t more = byte < 0xC2 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : byte < 0xF5 ? 3 : 0;
    size_t found = 0;
    while (found < more && i + found + 1 < text.size() && (text[i + found + 1] & 0xC0) == 0x80) ++found;
    if (byte == '"' || byte == '\\') {
      result += {'\\', text[i]};
    } else if (byte < 0x20 || (byte >= 0x7F && (more == 0 || found < more))) {
      result += '?';
    } else {
      result += text.substr(i, more + 1);
      i += more;
    }
  }
  return result + '"';
}

std::string microseconds(int64_t nanoseconds) {
  std::string digits = std::to_string(std::abs(nanoseconds % 1000));
  digits.insert(0, 3 - digits.size(), '0');
  return (nanoseconds < 0 ? "-" : "") + std::to_string(std::abs(nanoseconds / 1000)) + "." + digits;
}

/// The events of one process, written one after the other.
class Writer {
 public:
  Writer(Output& output, const Process& process, bool& first)
      : output_(output), process_(process), first_(first) {}

  void write() {
    const std::string rank = std::to_string(process_.rank);
    name("process_name", 0, "rank " + rank + " on " + process_.host);
    event("M", "process_sort_index", 0, R"(,"args":{"sort_index":)" + rank + "}");
    for (const Record& record : records_) look(record);
    if (has_batches_) name("thread_name", track(0), "batches");
    for (const auto& [plan, plan_name] : plans_)
      name("thread_name", track(plan), plan_name + ": gradients ready");
    for (const auto& [thread, spans] : spans_) write_thread(thread, spans);
    for (const Record& record : records_) write_of_plan(record);
  }

 private:
  /// The tracks of a plan have numbers of their own, above those of threads: one for gradients, one for each bucket.
  /// Track 0 has the batches.
  static uint64_t track(uint32_t plan) { return uint64_t{1'000'000} * plan; }
  static uint64_t track_of_bucket(Key bucket) { return track(bucket.first) + 1 + bucket.second; }

  /// A time of the records as the file shows it.
  int64_t shown(int64_t time) const { return process_.clock.there(time) - process_.timeline.origin(); }

  /// Notes names, spans and the last time.
  void look(const Record& record) {
    const Kind kind = record.kind.load(std::memory_order_acquire);
    const Key key{record.plan, record.index};
    last_ = std::max({last_, record.begin, record.end.load(std::memory_order_acquire)});
    if (kind == Kind::kNothing) return;
    if (kind <= Kind::kExchange) spans_[record.thread].push_back(&record);
    has_batches_ = has_batches_ || kind == Kind::kBatch;
    if (kind == Kind::kPlanName) plans_[record.plan] = record.name_view();
    if (kind == Kind::kTensorName) tensors_[key] = record.name_view();
    if (kind != Kind::kBucketSize) return;
    sizes_[key] = record.bytes;
    const std::string number = "bucket " + std::to_string(record.index);
    name("thread_name", track_of_bucket(key), plans_[record.plan] + ": " + number);
  }

  void write_thread(uint32_t thread, const std::vector<const Record*>& spans) {
    const bool exchanges_only = std::all_of(spans.begin(), spans.end(), [](const Record* span) {
      return span->kind.load(std::memory_order_relaxed) == Kind::kExchange;
    });
    name("thread_name", thread,
         std::string(exchanges_only ? "exchanges" : "calls and steps") + " (thread " +
             std::to_string(thread) + ")");
    std::vector<int64_t> around;  // the ends of the spans around this one
    for (const Record* span : spans) {
      while (!around.empty() && around.back() <= span->begin) around.pop_back();
      const int64_t limit = around.empty() ? last_ : around.back();
      const int64_t end = span->end.load(std::memory_order_acquire);
      const bool open = end == 0;
      around.push_back(open ? limit : std::min(end, limit));
      constexpr const char* kCategories[] = {"", "call", "part", "step", "exchange"};
      slice(kCategories[static_cast<uint32_t>(span->kind.load(std::memory_order_relaxed))], span->name_view(),
            thread, span->begin, around.back(), open ? R"(,"args":{"ended":false})" : "");
    }
  }

  void write_of_plan(const Record& record) {
    const Kind kind = record.kind.load(std::memory_order_acquire);
    const Key key{record.plan, record.index};
    if (kind == Kind::kGradient) {
      event("i", tensors_[key], track(record.plan),
            R"(,"cat":"gradient","s":"t","ts":)" + microseconds(shown(record.begin)));
    }
    if (kind == Kind::kBatch) {
      const int64_t end = record.end.load(std::memory_order_acquire);
      const std::string args = R"(,"args":{"rows":)" + std::to_string(record.rows) + "}";
      if (record.begin < end) {
        slice("batch", "await batch", track(0), record.begin, end, args);
      } else {
        event("i", "batch", track(0), R"(,"cat":"batch","s":"t","ts":)" + microseconds(shown(end)) + args);
      }
    }
    if (kind != Kind::kBucket) return;
    const auto get = [](const std::atomic<int64_t>& time) { return time.load(std::memory_order_acquire); };
    const int64_t ended = get(record.end);
    const bool open = ended == 0;
    const int64_t end = std::max(record.begin, open ? last_ : ended);
    const std::string args = R"(,"args":{"bytes":)" + std::to_string(sizes_[key]) +
                             (open                            ? R"(,"ended":false})"
                              : get(record.parts.failed) != 0 ? R"(,"failed":true})"
                                                              : "}");
    const uint64_t its_track = track_of_bucket(key);
    slice("bucket", "bucket " + std::to_string(record.index), its_track, record.begin, end, args);
    const std::pair<const char*, const char*> parts[] = {{"fill", "fill"},
                                                         {"wait", "wait for gradients of other ranks"},
                                                         {"sum", "sum a slice"},
                                                         {"wait", "wait for slices of other ranks"}};
    const int64_t ends[] = {get(record.parts.full), get(record.parts.summing), get(record.parts.summed), end};
    int64_t begin = record.begin;
    for (size_t i = 0; i < 4; ++i) {
      const int64_t until = ends[i] == 0 ? end : std::min(ends[i], end);
      slice(parts[i].first, parts[i].second, its_track, begin, until);
      if (ends[i] == 0) return;  // what comes after has not begun
      begin = until;
    }
  }

  void slice(const char* category, std::string_view name, uint64_t its_track, int64_t begin, int64_t end,
             const std::string& more = "") {
    event("X", name, its_track,
          std::string(R"(,"cat":")") + category + R"(","ts":)" + microseconds(shown(begin)) + R"(,"dur":)" +
              microseconds(shown(end) - shown(begin)) + more);
  }
  void name(const char* what, uint64_t its_track, const std::string& its_name) {
    event("M", what, its_track, R"(,"args":{"name":)" + json_string(its_name) + "}");
  }
  void event(const char* phase, std::string_view name, uint64_t its_track, const std::string& more) {
    output_.put(std::exchange(first_, false) ? "\n" : ",\n");
    output_.put(std::string(R"({"ph":")") + phase + R"(","name":)" + json_string(name) + R"(,"pid":)" +
                std::to_string(process_.rank) + R"(,"tid":)" + std::to_string(its_track) + more + "}");
  }

  Output& output_;
  const Process& process_;
  const std::span<const Record> records_ = process_.timeline.records();  ///< more may come meanwhile
  bool& first_;
  int64_t last_ = 0;  ///< in the records
  bool has_batches_ = false;
  std::map<uint32_t, std::string> plans_;
  std::map<Key, std::string> tensors_;
  std::map<Key, uint64_t> sizes_;
  std::map<uint32_t, std::vector<const Record*>> spans_;  ///< by thread, in the order of their begins
};

/// Behind the events: a reader that does not know it has all of them.
std::string other_data(const std::vector<Process>& processes, const Hosts& hosts) {
  std::string clocks, missing, lost;
  for (const auto& [host, clock] : hosts.clocks) {
    clocks += text(clocks.empty() ? "" : ",", "\n{\"host\":", json_string(host),
                   ",\"ahead_us\":", microseconds(clock.start().by),
                   ",\"ahead_at_end_us\":", microseconds(clock.end().by),
                   ",\"within_us\":", microseconds(clock.within()), "}");
  }
  for (const auto& [host, why] : hosts.missing) {
    missing += text(missing.empty() ? "" : ",", "\n{\"host\":", json_string(host),
                    ",\"why\":", json_string(why), "}");
  }
  for (const auto& [rank, host, timeline, clock] : processes) {
    if (timeline.lost() == 0) continue;
    lost += text(lost.empty() ? "" : ",", "\n{\"rank\":", rank, ",\"records\":", timeline.lost(), "}");
  }
  const int64_t origin = processes.empty() ? 0 : processes.front().timeline.origin();
  return text(",\n\"otherData\":{\"origin_us\":", microseconds(origin), ",\"clocks\":[", clocks,
              "],\"missing\":[", missing, "],\"lost\":[", lost, "]}");
}

int write_all(const std::string& file, const std::vector<Process>& processes, const Hosts& hosts) {
  Output output(file);
  bool first = true;
  output.put(R"({"displayTimeUnit":"ms","traceEvents":[)");
  for (const Process& process : processes) Writer(output, process, first).write();
  output.put("\n]");
  output.put(other_data(processes, hosts));
  output.put("}\n");
  return output.close();
}

Status cannot_write(const std::string& file, Code code, int error) {
  return {code, text("cannot write the timeline '", file, "': ", std::generic_category().message(error))};
}

}  // namespace

Status check_file(const std::string& file) {
  struct stat found{};
  const bool exists = ::stat(file.c_str(), &found) == 0;
  if (exists && S_ISDIR(found.st_mode)) return cannot_write(file, Code::kInvalidArgument, EISDIR);
  // nobody may read a pipe at the end of the job
  if (exists && !S_ISREG(found.st_mode) && !S_ISCHR(found.st_mode))
    return {Code::kInvalidArgument, text("cannot write the timeline '", file, "': it is not a file")};
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  const bool replaced = !exists || S_ISREG(found.st_mode);
  const std::string changed = !replaced ? file : folder.empty() ? "." : folder.string();
  if (::access(changed.c_str(), replaced ? W_OK | X_OK : W_OK) == 0 && !file.empty()) return {};
  return cannot_write(file, Code::kInvalidArgument, file.empty() ? ENOENT : errno);
}

Status write_json(const std::string& file, const std::vector<Process>& processes, const Hosts& hosts) {
  struct stat found{};
  if (::stat(file.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {  // a device
    const int error = write_all(file, processes, hosts);
    return error == 0 ? Status() : cannot_write(file, Code::kSystem, error);
  }
  const std::string part = text(file, ".", ::getpid(), ".part");
  int error = write_all(part, processes, hosts);
  if (error == 0 && std::rename(part.c_str(), file.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(part.c_str());
  return cannot_write(file, Code::kSystem, error);
}

std::string lost_records(const std::vector<Process>& processes) {
  std::string ranks;
  size_t kept = 0;
  for (const Process& process : processes) {
    if (process.timeline.lost() == 0) continue;
    ranks += text(ranks.empty() ? "" : ", ", process.rank);
    kept = process.timeline.records().size();
  }
  if (ranks.empty()) return "";
  return text("the timeline keeps the first ", kept, " events of a rank; the later ones of rank ", ranks,
              " are missing");
}

}  // namespace tarantella::timeline
