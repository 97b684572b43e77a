#include "collective/place.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/status.h"
#include "collective/members.h"

namespace tarantella::collective {
namespace {

constexpr size_t kWords = std::tuple_size_v<decltype(Place::text)>;
using Words = std::array<uint64_t, kWords>;

}  // namespace

void tell(Place& place, std::string_view text) {
  Words words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof(words) - 1));
  place.told.fetch_add(1, std::memory_order_acq_rel);
  for (size_t i = 0; i < kWords; ++i) place.text[i].store(words[i], std::memory_order_release);
  place.told.fetch_add(1, std::memory_order_acq_rel);
}

std::string told(const Place& place) {
  Words words{};
  const uint32_t before = place.told.load(std::memory_order_acquire);
  for (size_t i = 0; i < kWords; ++i) words[i] = place.text[i].load(std::memory_order_acquire);
  if (before % 2 != 0 || place.told.load(std::memory_order_acquire) != before) return {};
  return reinterpret_cast<const char*>(words.data());  // tell() leaves a zero at the end
}

Question::Question(Members& members, int job_rank)
    : place_(members.place(job_rank)), job_rank_(job_rank), before_(place_.told.load() / 2) {
  transport::Word& asked = members.place(job_rank).asked;
  asked.fetch_add(1);
  members.wake(asked);
}

bool Question::answered() const { return place_.listens.load() == 0 || place_.told.load() / 2 != before_; }

std::string Question::describe() const {
  const std::string where = told(place_);
  if (place_.listens.load() == 0) return text("rank ", job_rank_, " is alive and busy elsewhere");
  if (answered() && !where.empty()) return text("rank ", job_rank_, " is in ", where);
  return text("rank ", job_rank_, " is alive, but a call of its Python holds the interpreter lock",
              where.empty() ? "" : "; it was last seen in ", where);
}

}  // namespace tarantella::collective
