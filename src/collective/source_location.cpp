#include "collective/source_location.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/status.h"
#include "collective/rank_table.h"

namespace tarantella::collective {
namespace {

constexpr size_t kWords = std::tuple_size_v<decltype(SourceLocation::text)>;
using Words = std::array<uint64_t, kWords>;

}  // namespace

void report_location(SourceLocation& location, std::string_view text) {
  Words words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof(words) - 1));
  location.told.fetch_add(1, std::memory_order_acq_rel);
  for (size_t i = 0; i < kWords; ++i) location.text[i].store(words[i], std::memory_order_release);
  location.told.fetch_add(1, std::memory_order_acq_rel);
}

std::string reported_location(const SourceLocation& location) {
  Words words{};
  const uint32_t before = location.told.load(std::memory_order_acquire);
  for (size_t i = 0; i < kWords; ++i) words[i] = location.text[i].load(std::memory_order_acquire);
  if (before % 2 != 0 || location.told.load(std::memory_order_acquire) != before) return {};
  return reinterpret_cast<const char*>(words.data());  // report_location() leaves a zero at the end
}

Status SourceLocationListener::await(uint32_t& seen) {
  SourceLocation& own = table_.location(table_.rank());
  listens_.store(true);
  own.listens.store(1);
  while (!closed_.load()) {
    const uint32_t asked = own.asked.load();
    if (asked != seen) {
      seen = asked;
      return {};
    }
    if (!closed_.load()) table_.sleep(own.asked, asked, kForever);
  }
  own.listens.store(0);
  return {Code::kPeerLost, "this rank has closed its context"};
}

void SourceLocationListener::answer(const std::string& place) {
  report_location(table_.location(table_.rank()), place);
}

void SourceLocationListener::close() {
  closed_.store(true);
  if (!listens_.load()) return;
  transport::Word& asked = table_.location(table_.rank()).asked;
  asked.fetch_add(1);
  table_.wake(asked);
}

SourceLocationQuery::SourceLocationQuery(RankTable& rank_table, int job_rank)
    : location_(rank_table.location(job_rank)), job_rank_(job_rank), before_(location_.told.load() / 2) {
  transport::Word& asked = rank_table.location(job_rank).asked;
  asked.fetch_add(1);
  rank_table.wake(asked);
}

bool SourceLocationQuery::answered() const {
  return location_.listens.load() == 0 || location_.told.load() / 2 != before_;
}

std::string SourceLocationQuery::describe() const {
  const std::string where = reported_location(location_);
  if (location_.listens.load() == 0) return text("rank ", job_rank_, " is alive and busy elsewhere");
  if (answered() && !where.empty()) return text("rank ", job_rank_, " is in ", where);
  return text("rank ", job_rank_, " is alive, but a call of its Python holds the interpreter lock",
              where.empty() ? "" : "; it was last seen in ", where);
}

}  // namespace tarantella::collective
